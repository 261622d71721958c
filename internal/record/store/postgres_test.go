package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// execute runs SQL in the database at a URL.
func execute(t *testing.T, place, text string) {
	t.Helper()
	db, err := connect(place, modeWrite)
	must(t, err)
	_, err = db.ExecContext(context.WithoutCancel(t.Context()), text)
	must(t, errors.Join(err, db.Close()))
}

// as returns the URL of a database with another user.
func as(t *testing.T, place string, user *url.Userinfo) string {
	t.Helper()
	u, err := url.Parse(place)
	must(t, err)
	u.User = user
	return u.String()
}

func TestServerReadOnly(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	if _, err := OpenReadOnly(ctx, place); !errors.Is(err, ErrNone) {
		t.Errorf("an empty database: got %v, want ErrNone", err)
	}

	s, err := Open(ctx, place)
	must(t, err)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	must(t, s.Close())
	r, err := OpenReadOnly(ctx, place)
	must(t, err)
	defer r.Close()
	if run, err := r.Find(ctx, "latest"); err != nil || run.ID != "r1" {
		t.Errorf("find: got %q, %v, want r1", run.ID, err)
	}

	err = r.AppendTrial(ctx, sampleTrial("r1", 1))
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a reader writes: got %v, want that it is read-only", err)
	}
}

// An older schema is brought up to date by whoever writes, once; a newer one is refused as it is.
func TestServerVersions(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	steps := serverSteps()
	execute(t, place, steps[0]+`; INSERT INTO schema_version VALUES (1)`)
	_, err := OpenReadOnly(ctx, place)
	needs := fmt.Sprint("needs ", len(steps))
	if other, ok := errors.AsType[*VersionError](err); !ok || other.Has != 1 ||
		!strings.Contains(err.Error(), needs) || !strings.Contains(check.HintOf(err), "chokepoint push") {
		t.Errorf("read an older one: got %v, hint %q", err, check.HintOf(err))
	}

	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := Open(context.Background(), place)
			if err == nil {
				err = s.Close()
			}

			errs <- err
		}()
	}

	for range 4 {
		must(t, <-errs)
	}

	s, err := Open(ctx, place)
	must(t, err)
	ended(t, s, "r1") // with results, which version 1 does not have
	must(t, s.Close())
	execute(t, place, fmt.Sprintf(`INSERT INTO schema_version VALUES (%d)`, len(steps)+1))
	for name, open := range map[string]func(context.Context, string) (*Store, error){
		"write": Open, "read": OpenReadOnly} {
		_, err := open(ctx, place)
		if other, ok := errors.AsType[*VersionError](err); !ok || other.Has != len(steps)+1 ||
			!strings.Contains(check.HintOf(err), "newer chokepoint") {
			t.Errorf("%s a newer one: got %v, hint %q", name, err, check.HintOf(err))
		}
	}
}

func TestServerCompacts(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	for i := range 3 {
		ended(t, s, fmt.Sprint("r", i))
		must(t, s.Remove(ctx, fmt.Sprint("r", i)))
	}

	before, after, err := s.Compact(ctx)
	if err != nil || after >= before || after <= 0 {
		t.Errorf("compacted from %d bytes to %d, %v, want fewer", before, after, err)
	}
}

// A password opens the store, from the URL or a file, and no error or place has it.
func TestServerPassword(t *testing.T) {
	ctx := t.Context()
	const secret, wrong = "s3cr:t%/ö", "wr0ngw0rd"
	place := apart.Postgres(t)
	t.Cleanup(func() {
		execute(t, place, `DROP OWNED BY `+apart.PostgresWithPassword+`; DROP ROLE `+apart.PostgresWithPassword)
	})
	execute(t, place, `CREATE ROLE `+apart.PostgresWithPassword+` LOGIN PASSWORD '`+secret+`';
		GRANT ALL ON SCHEMA public TO `+apart.PostgresWithPassword)
	with := func(password string) string {
		return as(t, place, url.UserPassword(apart.PostgresWithPassword, password))
	}
	s, err := Open(ctx, with(secret))
	must(t, err)
	if want := "postgres://" + apart.PostgresWithPassword + "@/"; !strings.HasPrefix(s.path, want) {
		t.Errorf("place: got %s, want %s…", s.path, want)
	}

	must(t, s.CreateRun(ctx, sampleRun("r1")))
	duplicate := s.AppendTrial(ctx, sampleTrial("nobody", 1))
	must(t, s.Close())
	t.Setenv("PGPASSWORD", secret)
	without := as(t, place, url.User(apart.PostgresWithPassword))
	s, err = OpenReadOnly(ctx, without)
	must(t, err)
	must(t, s.Close())
	t.Setenv("PGPASSWORD", "")
	file := filepath.Join(t.TempDir(), "pgpass")
	must(t, os.WriteFile(file, []byte("*:*:*:*:"+strings.ReplaceAll(secret, ":", `\:`)+"\n"), 0o600))
	t.Setenv("PGPASSFILE", file)
	s, err = OpenReadOnly(ctx, without)
	must(t, err)
	must(t, s.Close())

	_, refused := OpenReadOnly(ctx, with(wrong))
	for _, bad := range []string{
		"postgres://u:" + wrong + "@/d?host=/nonexistent",
		"postgres://u:" + wrong + "@127.0.0.1:1/d?connect_timeout=1",
		"postgres://u:" + wrong + "@host:port/d",
		"postgres://u:" + wrong + "%zz@host/d",
		"postgres://u@host/d?sslmode=never&password=" + wrong,
		"postgres://u:" + wrong + "@host/d?sslmode=never",
		"postgresql://u:" + wrong + "@host/d?sslrootcert=/nonexistent&sslmode=verify-full",
		"postgres://u@host/d?sslpassword=" + wrong + "&sslmode=require&sslcert=/nonexistent",
		"postgres://u:" + wrong + "@ho st/d",
		"postgres://u:12/" + wrong + "@host/d",
		"postgres://u:12#" + wrong + "@host/d",
		"postgres://u:12?" + wrong + "@host/d",
		"postgres://u:" + wrong + "@host/d?target_session_attrs=x",
		"postgres://u@host:999999/d?password=" + wrong,
		"postgres:// :" + wrong + "@host/d",
		"mysql://u:" + wrong + "@host/d",
	} {
		for name, open := range map[string]func(context.Context, string) (*Store, error){
			"write": Open, "read": OpenReadOnly} {
			_, err := open(ctx, bad)
			refused = errors.Join(refused, err)
			if err == nil || !strings.Contains(err.Error(), "open store") {
				t.Errorf("%s %s: got %v, want an error that names the operation", name, bad, err)
			}
		}

		if strings.Contains(Shown(bad), wrong) {
			t.Errorf("shown: got %s, with the password", Shown(bad))
		}
	}

	text := fmt.Sprintf("%v %+v %v %v", refused, refused, duplicate, check.HintOf(refused))
	for _, hidden := range []string{wrong, secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		if strings.Contains(text, hidden) {
			t.Errorf("an error has the password %q:\n%s", hidden, text)
		}
	}

	if !strings.Contains(text, "password authentication failed") {
		t.Errorf("a wrong password: got %s", text)
	}
}

// A wrong URL names what is wrong in it.
func TestServerOptions(t *testing.T) {
	for place, want := range map[string]string{
		"postgres://u@h/d?target_session_attrs=x": "target_session_attrs",
		"postgres://u@h:999999/d":                 "port",
		"postgres://u@h/d?channel_binding=x":      "channel_binding",
		"postgres://u@h/d?connect_timeout=x":      "connect_timeout",
		"host=h user=u password=34":               "no URL",
		"postgres:u:34@h/d":                       "no URL",
		"postgres://u:12/34@h/d":                  "postgres://…: the URL cannot be read",
	} {
		if err := CheckURL(place); err == nil || !strings.Contains(err.Error(), want) ||
			check.HintOf(err) == "" || strings.Contains(err.Error()+Shown(place), "34") {
			t.Errorf("%s: got %v, want %q and a hint", place, err, want)
		}
	}
}

// An error of a connection is one line with a hint.
func TestServerHints(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	at := func(path string) string {
		u, err := url.Parse(place)
		must(t, err)
		u.Path = path
		return u.String()
	}
	for place, want := range map[string]string{
		"postgres://u@127.0.0.1:1/d":        "server runs",
		"postgres://u@/d?host=/nonexistent": "server runs",
		at("/nonexistent"):                  "database",
		as(t, place, url.User("nobody")):    "user",
	} {
		_, err := Open(ctx, place)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(check.HintOf(err), want) {
			t.Errorf("%s: got %v, hint %q, want a line and a hint at %s", place, err, check.HintOf(err), want)
		}
	}
}

// A database of another encoding would not hold every text.
func TestServerEncoding(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	t.Cleanup(func() { execute(t, place, `DROP DATABASE latin`) })
	execute(t, place, `CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'`)
	u, err := url.Parse(place)
	must(t, err)
	u.Path = "/latin"
	if _, err := Open(ctx, u.String()); err == nil || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("encoding LATIN1: got %v, want that it is not UTF8", err)
	}
}

// asked counts the queries of a connection.
type asked struct{ queries int }

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	a.queries++
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestServerReadsTrialsTogether: the trials of a run do not cost a round trip each, and come in their order;
// one that cannot be decoded hides no other.
func TestServerReadsTrialsTogether(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	s, err := Open(ctx, place)
	must(t, err)
	must(t, s.CreateRun(ctx, sampleRun("r1")))
	const n, damaged = 30, 7
	for i := n; i > 0; i-- {
		p, err := s.pack(sampleTrial("r1", i))
		must(t, err)
		if i == damaged {
			p.body = []byte("damaged")
		}
		must(t, s.insert(ctx, p))
	}

	must(t, s.db.Close())
	config, err := parse(place)
	must(t, err)
	count := &asked{}
	config.Tracer = count
	s.db = stdlib.OpenDB(*config)
	defer s.Close()
	i := 0
	for got, err := range s.Each(ctx, "r1") {
		i++
		_, bad := errors.AsType[*DamagedTrialError](err)
		if bad != (i == damaged) || err == nil && got.Row.Index != i {
			t.Errorf("trial %d: got %d, %v", i, got.Row.Index, err)
		}
	}

	if i != n || count.queries > n/4 {
		t.Errorf("got %d trials by %d queries, want %d by at most %d", i, count.queries, n, n/4)
	}
}
