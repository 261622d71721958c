package store

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestVerifyFindsDamage(t *testing.T) {
	tests := []struct {
		name, damage, want string // want: part of the error, "" for none
	}{
		{"whole", "", ""},
		{"end without its run",
			`PRAGMA foreign_keys=0; INSERT INTO run_ends VALUES (9,'nobody','done','',0)`,
			"a row of run_ends refers to no row of runs"},
		{"index without its rows",
			`PRAGMA writable_schema=1; DELETE FROM sqlite_schema WHERE name='run_ends_run'`, "never used"},
		{"torn body", `DROP TRIGGER trials_fixed; UPDATE trials SET body = substr(body, 1, length(body)/2)`,
			"read trial"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runs.db")
			s, err := Open(t.Context(), path)
			must(t, err)
			must(t, s.CreateRun(t.Context(), sampleRun("r")))
			must(t, s.AppendTrial(t.Context(), sampleTrial("r", 1)))
			_, err = s.db.ExecContext(t.Context(), tt.damage)
			must(t, err)
			must(t, s.Close())
			s, err = Open(t.Context(), path)
			must(t, err)
			defer s.Close()
			got := s.Verify(t.Context())
			if tt.want == "" && got != nil || tt.want != "" && (got == nil || !strings.Contains(got.Error(),
				tt.want)) {
				t.Errorf("verify: got %v, want %q in it", got, tt.want)
			}
		})
	}
}
