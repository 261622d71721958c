package store

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestBothEngines holds a file and a database on a server to the same behaviour.
func TestBothEngines(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *Store{"file": newStore, "server": newServer} {
		t.Run(name, func(t *testing.T) {
			for name, test := range bothEngines() {
				t.Run(name, func(t *testing.T) { test(t, open(t)) })
			}
		})
	}
}

func bothEngines() map[string]func(*testing.T, *Store) {
	return map[string]func(*testing.T, *Store){
		"RoundTrip":                     testRoundTrip,
		"ForeignIsKept":                 testForeignIsKept,
		"DuplicatesAreRefused":          testDuplicatesAreRefused,
		"TrialOfUnknownRunIsRefused":    testTrialOfUnknownRunIsRefused,
		"NothingCanBeChanged":           testNothingCanBeChanged,
		"RunStateAndNotes":              testRunStateAndNotes,
		"InventoriesAfterTheRun":        testInventoriesAfterTheRun,
		"ASecondImportReplacesTheFirst": testASecondImportReplacesTheFirst,
		"FindAndRuns":                   testFindAndRuns,
		"ImportedRunIsTheNewest":        testImportedRunIsTheNewest,
		"NamesFindRuns":                 testNamesFindRuns,
		"NamesAreUnique":                testNamesAreUnique,
		"Headline":                      testHeadline,
		"Results":                       testResults,
		"ForeignIDs":                    testForeignIDs,
		"Remove":                        testRemove,
		"Count":                         testCount,
		"DamagedHeadHidesNoOtherRun":    testDamagedHeadHidesNoOtherRun,
		"SendRefused":                   testSendRefused,
		"Sizes":                         testSizes,
		"EveryText":                     testEveryText,
		"Beds":                          testBeds,
		"BedElsewhere":                  testBedElsewhere,
		"BedUnreadable":                 testBedUnreadable,
		"BedRequests":                   testBedRequests,
		"BedRequestsAhead":              testBedRequestsAhead,
		"BedRequestsRefused":            testBedRequestsRefused,
	}
}

// newServer returns the store in a new database of a server.
func newServer(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), apart.Postgres(t))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Bytes that no server stores do not keep a run from it.
func testEveryText(t *testing.T, s *Store) {
	ctx := t.Context()
	run := sampleRun("r1")
	run.Lab = "a\x00b"
	run.Design.Name = "\xffc"
	must(t, s.CreateRun(ctx, run))
	must(t, s.EndRun(ctx, "r1", record.RunFailed, "says \xfe\x00", sampleStart))
	heads, err := s.Runs(ctx)
	must(t, err)
	if h := heads[0]; h.Lab != "a\uFFFDb" || h.Plan != "\uFFFDc" || h.Reason != "says \uFFFD\uFFFD" {
		t.Errorf("got lab %q, plan %q, reason %q", h.Lab, h.Plan, h.Reason)
	}
}
