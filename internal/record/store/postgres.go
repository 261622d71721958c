package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// urlBegins matches the scheme of a URL. The path of a store cannot begin like this.
var urlBegins = check.Pattern(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// libpqForm matches the other connection strings that libpq accepts, which are refused here. No absolute path
// begins like this.
var libpqForm = check.Pattern(
	`^(postgres(ql)?:|([^/]*\s)?(host|hostaddr|port|dbname|user|password|service|sslmode)\s*=)`)

// OnServer reports whether a place is a URL, valid or not, rather than the path of a file.
func OnServer(place string) bool {
	return urlBegins().MatchString(place) || libpqForm().MatchString(place)
}

// Shown returns the place of a store in the form in which it is printed and stored: a URL loses its password
// and options.
func Shown(place string) string {
	if !OnServer(place) {
		return place
	}

	if !urlBegins().MatchString(place) {
		return "on a server"
	}

	u, err := url.Parse(place)
	if err != nil || u.User == nil && strings.Contains(place, "@") { // the password may be anywhere
		return urlBegins().FindString(place)
	}

	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User.Username() != "" {
		shown.User = url.User(u.User.Username())
	}

	return shown.String()
}

// connectTime is the timeout for connecting to a server, unless the URL has connect_timeout.
const connectTime = 10 * time.Second

// CheckURL returns an error if a place is a URL but not that of a PostgreSQL database.
func CheckURL(place string) error {
	if !OnServer(place) {
		return nil
	}

	_, err := parse(place)
	return err
}

// parse parses the URL of a database. Values that the URL lacks come from the environment variables and
// files of libpq, such as PGPASSFILE. Errors never contain the password.
func parse(place string) (*pgx.ConnConfig, error) {
	refuse := func(why string) error {
		return check.Hinted(urlForm, "open store %s: %s", Shown(place), why)
	}
	u, err := url.Parse(place)
	switch {
	case !urlBegins().MatchString(place):
		return nil, refuse("this is no URL")
	case err != nil: // the error's text contains the whole URL
		return nil, refuse("the URL cannot be read")
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return nil, refuse("it is neither a directory nor the URL of a PostgreSQL database")
	case u.User == nil && strings.Contains(place, "@"), u.Fragment != "": // this may be part of the password
		return nil, check.Hinted("write / ? # and @ in a password as %2F %3F %23 and %40, or better keep it "+
			"in ~/.pgpass", "open store %s://…: the URL cannot be read", u.Scheme)
	}

	config, err := pgx.ParseConfig(place)
	if err != nil {
		return nil, refuse(whyWrong(err, u))
	}

	return config, nil
}

// whyWrong returns why the options of a URL are wrong, without the URL itself.
func whyWrong(err error, u *url.URL) string {
	_, why, found := strings.Cut(err.Error(), "`: ")
	password, _ := u.User.Password()
	for _, secret := range []string{password, u.Query().Get("password"), u.Query().Get("sslpassword")} {
		found = found && (secret == "" || !strings.Contains(why, secret))
	}

	if !found {
		return "its options are wrong"
	}
	return why
}

// connect returns the database at a URL.
func connect(place, mode string) (*sql.DB, error) {
	config, err := parse(place)
	if err != nil {
		return nil, err
	}

	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTime)
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "chokepoint")
	if mode == modeRead {
		config.RuntimeParams["default_transaction_read_only"] = "on"
	}

	return stdlib.OpenDB(*config), nil
}

// urlForm is the hint for an invalid URL.
const urlForm = "a store on a server is like postgres://USER@HOST/DATABASE?sslmode=verify-full, a password " +
	"belongs into ~/.pgpass"

// serverError is an error of a server, formatted as one line.
type serverError struct {
	text string
	err  error
}

func (e *serverError) Error() string { return e.text }
func (e *serverError) Unwrap() error { return e.err }

// advise shortens the error of a failed connection to the message of the last attempt. It adds a hint if the
// cause of the error is known.
func advise(err error) error {
	hint := ""
	failed, connecting := errors.AsType[*pgconn.ConnectError](err)
	if connecting {
		lines := strings.Split(strings.TrimSpace(failed.Unwrap().Error()), "\n")
		err = &serverError{strings.TrimSpace(lines[len(lines)-1]), err}
		hint = "check that the server runs, and host and port in the URL"
	}

	if answer, answered := errors.AsType[*pgconn.PgError](err); answered {
		switch {
		case answer.Code[:2] == "28":
			hint = "check the user in the URL, and the password in ~/.pgpass"
		case answer.Code == "3D000":
			hint = "create the database, or check its name in the URL; see docs/howto/team-store.md"
		case answer.Code == "42501":
			hint = "this user's role on the server may not do that, see docs/howto/team-store.md"
		}
	}

	return check.WithHint(err, hint)
}

// lock makes writers of the same item wait for each other until their transactions end. A file needs no lock,
// because it has only one writer at a time.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, what string) error {
	if !s.server {
		return nil
	}

	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "chokepoint "+what)
	return err
}

// serverSteps returns the schema on a server as a list of changes, one for each version.
func serverSteps() []string {
	types := strings.NewReplacer("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		"INTEGER", "BIGINT", "BLOB", "BYTEA", "TEXT", `TEXT COLLATE "C"`, " WITHOUT ROWID", "")
	return []string{
		types.Replace(schema) + serverTriggers,
		types.Replace(schemaOfResults),
		types.Replace(schemaOfBeds),
		serverBeds,
		serverOwners,
	}
}

// serverBeds limits the size of rows about testbeds. Only the user who first reported a testbed can change
// its row and answer its requests.
const serverBeds = `
ALTER TABLE beds ADD COLUMN owner TEXT COLLATE "C";
ALTER TABLE beds ADD CHECK (octet_length(host) <= 255 AND octet_length(body) <= 1048576);
ALTER TABLE bed_requests ADD CHECK (octet_length(id) <= 64 AND octet_length(body) <= 16384);
CREATE FUNCTION own_bed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.owner <> session_user THEN
		RAISE insufficient_privilege USING MESSAGE = format('testbed %s belongs to user %s', OLD.name, OLD.owner);
	END IF;
	NEW.owner := session_user;
	RETURN NEW;
END $$;
CREATE FUNCTION own_request() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	owner text;
BEGIN
	EXECUTE format('SELECT owner FROM %I.beds WHERE name = $1', TG_TABLE_SCHEMA) INTO owner USING OLD.bed;
	IF owner <> session_user THEN
		RAISE insufficient_privilege USING MESSAGE = format('testbed %s belongs to user %s', OLD.bed, owner);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER own BEFORE INSERT OR UPDATE ON beds FOR EACH ROW EXECUTE FUNCTION own_bed();
CREATE TRIGGER own BEFORE UPDATE ON bed_requests FOR EACH ROW EXECUTE FUNCTION own_request();
`

// serverOwners restricts who can add to a run: the user who sent it, and users who may delete runs. Only the
// latter can add to runs that were sent before this change of the schema. serverOwners also limits the size
// of what lists read, and the number of a user's testbeds. It sets the search path of the trigger functions
// so that other objects cannot replace PostgreSQL's own.
const serverOwners = `
ALTER TABLE runs ADD COLUMN owner TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD CHECK (octet_length(plan) + octet_length(lab) + octet_length(line) <= 1048576) NOT VALID;
ALTER TABLE run_ends ADD CHECK (octet_length(reason) <= 1048576) NOT VALID;
ALTER TABLE run_labels ADD CHECK (octet_length(text) <= 1048576) NOT VALID;
CREATE FUNCTION new_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.owner := session_user;
	RETURN NEW;
END $$;
CREATE FUNCTION own_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	changed record;
	owner text;
BEGIN
	IF TG_OP = 'DELETE' THEN changed := OLD; ELSE changed := NEW; END IF;
	EXECUTE format('SELECT owner FROM %I.runs WHERE id = $1', TG_TABLE_SCHEMA) INTO owner USING changed.run;
	IF owner <> session_user
		AND NOT has_table_privilege(session_user, format('%I.runs', TG_TABLE_SCHEMA), 'DELETE') THEN
		RAISE EXCEPTION USING MESSAGE = format('run %s belongs to user %s', changed.run,
			coalesce(nullif(owner, ''), 'unknown'));
	END IF;
	RETURN changed;
END $$;
CREATE FUNCTION few_beds() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	few bool;
BEGIN
	EXECUTE format('SELECT count(*) < 100 FROM %I.beds WHERE owner = session_user', TG_TABLE_SCHEMA) INTO few;
	IF NOT few THEN
		RAISE insufficient_privilege USING MESSAGE = format('user %s has 100 testbeds', session_user);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER own BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION new_run();
CREATE TRIGGER own BEFORE INSERT ON run_notes FOR EACH ROW EXECUTE FUNCTION own_run();
CREATE TRIGGER own BEFORE INSERT ON run_ends FOR EACH ROW EXECUTE FUNCTION own_run();
CREATE TRIGGER own BEFORE INSERT ON run_labels FOR EACH ROW EXECUTE FUNCTION own_run();
CREATE TRIGGER own BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION own_run();
CREATE TRIGGER own BEFORE INSERT OR DELETE OR UPDATE ON cell_results FOR EACH ROW EXECUTE FUNCTION own_run();
CREATE TRIGGER few BEFORE INSERT ON beds FOR EACH ROW EXECUTE FUNCTION few_beds();
ALTER FUNCTION append_only() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION kept() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION own_bed() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION own_request() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION new_run() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION own_run() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION few_beds() SET search_path = pg_catalog, pg_temp;
`

// serverTriggers has triggers that reject the same changes as schemaTriggers, and TRUNCATE. It also creates
// the table schema_version, which lists the versions that were applied to the database.
const serverTriggers = `
CREATE TABLE schema_version (version BIGINT PRIMARY KEY);
CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'append-only'; END $$;
CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	gone text;
	may bool;
BEGIN
	IF TG_TABLE_NAME = 'runs' THEN gone := OLD.id; ELSE gone := OLD.run; END IF;
	EXECUTE format('SELECT $1 IN (SELECT run FROM %I.removed)', TG_TABLE_SCHEMA) INTO may USING gone;
	IF NOT may THEN RAISE EXCEPTION 'append-only'; END IF;
	RETURN OLD;
END $$;
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['runs', 'run_notes', 'run_ends', 'run_labels', 'trials'] LOOP
		EXECUTE format('CREATE TRIGGER fixed BEFORE UPDATE OR TRUNCATE ON %I
			EXECUTE FUNCTION append_only()', name);
		EXECUTE format('CREATE TRIGGER kept BEFORE DELETE ON %I FOR EACH ROW EXECUTE FUNCTION kept()', name);
	END LOOP;
END $$;
CREATE TRIGGER fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON removed EXECUTE FUNCTION append_only();
CREATE TRIGGER fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON schema_version EXECUTE FUNCTION append_only();
`

// serverVersion returns the version of the schema on a server, or 0 if there is none.
func serverVersion(ctx context.Context, q asker) (has int, err error) {
	var any bool
	err = q.QueryRowContext(ctx, `SELECT to_regclass('schema_version') IS NOT NULL`).Scan(&any)
	if err == nil && any {
		err = q.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM schema_version`).Scan(&has)
	}
	return has, err
}

// prepareServer compares the schema on a server with that of this program. For writing, it creates or
// upgrades the schema in one transaction. Several programs may do so at the same time.
func (s *Store) prepareServer(ctx context.Context, mode string) error {
	steps := serverSteps()
	has, err := serverVersion(ctx, s.db)
	switch {
	case err != nil:
		return fmt.Errorf("open store %s: %w", s.path, advise(err))
	case has == len(steps):
		return nil
	case has > len(steps), has > 0 && mode == modeRead:
		return &VersionError{Path: s.path, Has: has, Knows: len(steps)}
	case mode == modeRead:
		return ErrNone
	}

	err = s.inTx(ctx, func(tx *sql.Tx) error {
		err := s.lock(ctx, tx, "schema")
		if err == nil {
			has, err = serverVersion(ctx, tx) // another program may have upgraded it meanwhile
		}

		if err == nil {
			err = checkEncoding(ctx, tx)
		}

		for ; err == nil && has < len(steps); has++ {
			if _, err = tx.ExecContext(ctx, steps[has]); err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO schema_version VALUES ($1)`, has+1)
			}
		}
		return err
	})
	if err != nil {
		return check.Hinted("the owner of the database does it with chokepoint push --to URL",
			"set up schema of store %s: %w", s.path, err)
	}

	return nil
}

// checkEncoding returns an error unless the database uses UTF-8.
func checkEncoding(ctx context.Context, tx *sql.Tx) error {
	var encoding string
	err := tx.QueryRowContext(ctx, `SHOW server_encoding`).Scan(&encoding)
	if err == nil && encoding != "UTF8" {
		err = fmt.Errorf("the database has encoding %s, not UTF8", encoding)
	}
	return err
}

// compactServer rewrites the tables and returns their size in bytes before and after.
func (s *Store) compactServer(ctx context.Context) (before, after int64, err error) {
	const tables = "runs, run_notes, run_ends, run_labels, trials, cell_results"
	size := func() (n int64, err error) {
		err = s.db.QueryRowContext(ctx, `SELECT sum(pg_total_relation_size(t::regclass))::bigint
			FROM unnest(string_to_array($1, ', ')) t`, tables).Scan(&n)
		return n, err
	}
	var others int
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM unnest(string_to_array($1, ', ')) t
		JOIN pg_class c ON c.oid = t::regclass WHERE NOT pg_has_role(c.relowner, 'USAGE')`, tables).Scan(&others)
	if err == nil && others > 0 { // VACUUM would only print a warning
		err = errors.New("only the owner of its tables can")
	}

	if err == nil {
		before, err = size()
	}

	if err == nil {
		_, err = s.db.ExecContext(ctx, `VACUUM FULL `+tables)
	}

	if err == nil {
		after, err = size()
	}

	return before, after, err
}
