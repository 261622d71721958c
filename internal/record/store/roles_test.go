package store

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The roles of the guide may do what it says.
func TestServerRoles(t *testing.T) {
	ctx := t.Context()
	place := apart.Postgres(t)
	s, err := Open(ctx, place)
	must(t, err)
	ended(t, s, "r1")
	must(t, s.Close())
	page, err := os.ReadFile("../../../docs/howto/team-store.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Fatalf("blocks of SQL in the guide: got %d, want those of four roles", len(blocks))
	}

	t.Cleanup(func() {
		execute(t, place, `DROP OWNED BY r, b, c, a, o, chokepoint_reader, chokepoint_bed, chokepoint_operator, chokepoint_admin;
			DROP ROLE r, b, c, a, o, chokepoint_admin, chokepoint_operator, chokepoint_bed, chokepoint_reader`)
	})
	for _, b := range blocks {
		execute(t, place, b[1])
	}

	execute(t, place, `CREATE ROLE r LOGIN IN ROLE chokepoint_reader; CREATE ROLE b LOGIN IN ROLE chokepoint_bed;
		CREATE ROLE c LOGIN IN ROLE chokepoint_bed; CREATE ROLE a LOGIN IN ROLE chokepoint_admin; CREATE ROLE o LOGIN IN ROLE chokepoint_operator`)
	local := newStore(t)
	ended(t, local, "r2")
	send := func(s *Store) error { _, err := local.Send(ctx, s, "r2"); return err }
	read := func(s *Store) error { return s.Verify(ctx) }
	name := func(s *Store) error { return s.SetName(ctx, "r1", "other") }
	remove := func(s *Store) error { return s.Remove(ctx, "r1") }
	report := func(s *Store) error { return s.SetBed(ctx, sampleBed("lab-1")) }
	ask := func(s *Store) error {
		_, err := s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskStart, Plan: "quick", Asked: sampleStart})
		return err
	}
	schedule := func(s *Store) error {
		q, err := s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskStart, Plan: "quick", Asked: sampleStart,
			At: sampleStart.Add(time.Hour)})
		must(t, err)
		_, err = s.AskBed(ctx, BedRequest{Bed: "lab-1", Kind: AskCancel, Job: q.ID, Asked: sampleStart})
		return err
	}
	answer := func(s *Store) error {
		list, err := s.BedRequests(ctx, "lab-1")
		must(t, err)
		return s.AnswerBedRequest(ctx, list[0].ID, "", "no", sampleStart)
	}
	forget := func(s *Store) error { return s.RemoveBed(ctx, "lab-1") }
	statement := func(text string) func(*Store) error {
		return func(s *Store) error { _, err := s.db.ExecContext(ctx, text); return err }
	}
	result := func(run string) func(*Store) error {
		return statement(`INSERT INTO cell_results (cell, run, firmware, body)
			VALUES ('x', '` + run + `', '', '{}') ON CONFLICT (cell, run, firmware) DO NOTHING`)
	}
	for _, tt := range []struct {
		role, what string
		do         func(*Store) error
		may        bool
	}{
		{"r", "read", read, true},
		{"r", "send", send, false},
		{"r", "name", name, false},
		{"r", "insert", statement(`INSERT INTO run_ends (run, status, reason, ended_ns) VALUES ('r1', '', '', 0)`),
			false},
		{"r", "remove", remove, false},
		{"b", "read", read, true},
		{"b", "send", send, true},
		{"b", "send it again", func(s *Store) error {
			must(t, local.EndRun(ctx, "r2", record.RunDone, "", sampleStart))
			return send(s)
		}, true},
		{"c", "end a run of another", statement(`INSERT INTO run_ends (run, status, reason, ended_ns)
			VALUES ('r2', 'failed', '', 0)`), false},
		{"c", "name a run of another", func(s *Store) error { return s.SetName(ctx, "r2", "other") }, false},
		{"c", "annotate a run of another", func(s *Store) error {
			return s.AddNote(ctx, "r2", Note{ForgetFacts: "router"})
		}, false},
		{"c", "add a trial to a run of another", func(s *Store) error {
			return s.AppendTrial(ctx, sampleTrial("r2", 9))
		}, false},
		{"b", "store results", result("r2"), true},
		{"c", "store results of another's run", result("r2"), false},
		{"c", "delete results of another's run", statement(`DELETE FROM cell_results`), false},
		{"c", "send a run as its own, whatever it says", statement(`BEGIN;
			INSERT INTO runs (id, stored_ns, started_ns, plan, lab, line, head, owner)
			VALUES ('r4', 0, 0, '', '', '', '', 'b');
			SELECT 1 / (SELECT count(*) FROM runs WHERE id = 'r4' AND owner = 'c'); ROLLBACK`), true},
		{"c", "store a line of any length", statement(`INSERT INTO runs (id, stored_ns, started_ns, plan, lab,
			line, head) VALUES ('r5', 0, 0, '', '', repeat('x', 1048577), '')`), false},
		{"c", "report 101 testbeds", statement(`INSERT INTO beds SELECT 'x-' || i, 'h', 1, '{}'
			FROM generate_series(1, 101) i`), false},
		{"b", "remove", remove, false},
		{"b", "delete trials", statement(`DELETE FROM trials`), false},
		{"b", "block an id", statement(`INSERT INTO removed VALUES ('r3', 0)`), false},
		{"b", "update", statement(`UPDATE runs SET plan = ''`), false},
		{"b", "truncate", statement(`TRUNCATE cell_results`), false},
		{"b", "claim a version", statement(`INSERT INTO schema_version VALUES (9)`), false},
		{"b", "drop a trigger", statement(`DROP TRIGGER kept ON runs`), false},
		{"b", "report", report, true},
		{"r", "report", report, false},
		{"r", "ask", ask, false},
		{"o", "report", report, false},
		{"o", "ask", ask, true},
		{"o", "schedule and cancel", schedule, true},
		{"c", "answer for another testbed", answer, false},
		{"c", "report another testbed", report, false},
		{"c", "take another testbed", statement(`UPDATE beds SET owner = 'c', seen_ns = 1`), false},
		{"o", "answer", answer, false},
		{"o", "name", name, false},
		{"b", "answer", answer, true},
		{"b", "ask", ask, false},
		{"b", "change a request", statement(`UPDATE bed_requests SET body = ''`), false},
		{"b", "forget a testbed", forget, false},
		{"a", "forget a testbed", forget, true},
		{"a", "read", read, true},
		{"a", "name", name, true},
		{"a", "delete trials", statement(`DELETE FROM trials`), false},
		{"a", "delete trials by a table of its own", statement(`CREATE TEMP TABLE removed (run text);
			INSERT INTO pg_temp.removed VALUES ('r1'); DELETE FROM trials`), false},
		{"a", "drop a trigger", statement(`DROP TRIGGER kept ON runs`), false},
		{"a", "remove", remove, true},
		{"a", "compact", func(s *Store) error { _, _, err := s.Compact(ctx); return err }, false},
		{"a", "read what is left", read, true},
	} {
		s, err := Open(ctx, as(t, place, url.User(tt.role)))
		must(t, err)
		err = tt.do(s)
		if (err == nil) != tt.may {
			t.Errorf("role %s, %s: got %v, want that it may: %v", tt.role, tt.what, err, tt.may)
		}

		if tt.what == "name" && !tt.may && !strings.Contains(check.HintOf(err), "role") {
			t.Errorf("role %s, %s: got hint %q", tt.role, tt.what, check.HintOf(err))
		}

		must(t, s.Close())
	}
}

// TestServerFunctionsAreClosed: no function of a trigger finds a type or table that its caller made.
func TestServerFunctionsAreClosed(t *testing.T) {
	place := apart.Postgres(t)
	s, err := Open(t.Context(), place)
	must(t, err)
	defer s.Close()
	open, err := query(t.Context(), s.db, scanText, `SELECT DISTINCT p.proname FROM pg_trigger t
		JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal
		AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)`)
	if err != nil || len(open) > 0 {
		t.Errorf("functions with the search path of the caller: got %v, %v, want none", open, err)
	}
}
