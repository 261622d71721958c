package journal

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyUndoneChangesOfDeadOwnersAreStale(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	first, _ := j.Add(Entry{Kind: KindLab, Lab: "a"})
	second, _ := j.Add(Entry{Kind: KindSetting, Knob: "queue", Before: "noqueue"})
	third, _ := j.Add(Entry{Kind: KindSetting, Knob: "nat", Before: "off"})
	if err := j.Done(second); err != nil {
		t.Fatal(err)
	}
	stale, living, err := FindStale(dir)
	if err != nil || len(stale) != 0 || len(living) != 1 {
		t.Fatalf("while the owner lives: %d stale, living %v, %v", len(stale), living, err)
	}
	// The owner dies in the middle of a write.
	j.file.WriteString(`{"entry":{"seq":4,"ki`)
	j.file.Close()
	stale, living, err = FindStale(dir)
	if err != nil || len(stale) != 1 || len(living) != 0 {
		t.Fatalf("after its death: %d stale, living %v, %v", len(stale), living, err)
	}
	got := stale[0].Entries
	if len(got) != 2 || got[0].Seq != third || got[1].Seq != first {
		t.Errorf("entries %+v, want the third, then the first", got)
	}
	if err := stale[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files left", len(left))
	}
}

func TestCloseRemovesOnlyACleanJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, "run-2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Add(Entry{Kind: KindLab}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err == nil {
		t.Error("Close with an open change: nil, want an error")
	}
	if _, err := os.Stat(filepath.Join(dir, "run-2.jsonl")); err != nil {
		t.Errorf("journal with an open change is gone: %v", err)
	}
	os.Remove(filepath.Join(dir, "run-2.jsonl"))
	j, err = Create(dir, "run-2")
	if err != nil {
		t.Fatal(err)
	}
	seq, _ := j.Add(Entry{Kind: KindLab})
	j.Done(seq)
	if err := j.Close(); err != nil {
		t.Errorf("Close of a clean journal: %v", err)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"entry":{"seq":1,"kind":"lab"}}`))
	f.Add([]byte(`{"undone":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseLine(b); err != nil && (l.Entry != nil || l.Undone != 0) {
			t.Fatal("error with a result")
		}
	})
}
