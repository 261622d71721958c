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
