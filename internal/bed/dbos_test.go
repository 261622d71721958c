package bed

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// A job that was cut short goes on with the step that was cut short, by the next engine.
func TestEngineContinues(t *testing.T) {
	for name, place := range map[string]func() string{
		"file":   func() string { return filepath.Join(t.TempDir(), "jobs with spaces.db") },
		"server": func() string { return apart.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			continues(t, place())
		})
	}
}

// A second machine with the same name and database does not execute the jobs of the first.
func TestElsewhere(t *testing.T) {
	place := apart.Postgres(t)
	first := store.Claim{Place: place, Name: "bed lab-1"}
	if held, err := first.Hold(t.Context()); !held || err != nil {
		t.Fatal(held, err)
	}
	defer first.Close()
	b, _, _ := service(t)
	b.Config.Database, b.engine = place, nil
	if err := b.serve(t.Context()); !errors.Is(err, errElsewhere) {
		t.Errorf("got %v", err)
	}
}

// A step whose result cannot be recorded does not fail its job, which goes on with that step.
func TestLostDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rename := func(from, to string) {
		if _, err := db.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			t.Error(err)
		}
	}
	lost, done := make(chan error, 1), make(chan error, 2)
	times := 0
	open := func() *transact {
		e, err := openTransact(t.Context(), "lab-1", file, t.Logf, func(err error) { lost <- err },
			func(s steps, _ Job) (r Result, err error) {
				defer func() { done <- err }()
				r.Status, err = step(s, "only", func(context.Context) (string, error) {
					if times++; times == 1 {
						rename("operation_outputs", "away")
					}
					return store.BedDone, nil
				})
				return r, err
			})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	if err := e.start(Job{ID: "one"}); err != nil {
		t.Fatal(err)
	}

	if err := <-lost; err == nil || len(done) > 0 {
		t.Errorf("without a table: got %v, jobs that ended %d", err, len(done))
	}

	if err := e.close(); err != nil || <-done == nil {
		t.Errorf("close: got %v", err)
	}

	rename("away", "operation_outputs")
	e = open()
	if err := <-done; err != nil || times != 2 {
		t.Errorf("again: got %v after %d times", err, times)
	}

	if err := e.close(); err != nil {
		t.Error(err)
	}
}

func continues(t *testing.T, database string) {
	var mu sync.Mutex
	ran := map[string]int{}
	reached := make(chan string, 10)
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		ran[what]++
	}
	open := func(stop <-chan struct{}) *transact {
		work := func(s steps, j Job) (Result, error) {
			first, err := step(s, "first", func(context.Context) (string, error) {
				count(j.ID + " first")
				return j.Why, nil
			})
			if err != nil {
				return Result{}, err
			}

			second, err := step(s, "second", func(ctx context.Context) (string, error) {
				count(j.ID + " second")
				reached <- j.ID
				select {
				case <-ctx.Done():
					return "", ctx.Err()
				case <-stop:
					return "whole", nil
				}
			})
			return Result{Status: store.BedDone, Reason: first + " " + second}, err
		}
		e, err := openTransact(t.Context(), "lab-1", database, t.Logf, func(err error) { t.Log(err) }, work)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open(nil)
	for range 2 {
		if err := e.start(Job{ID: "one", Why: "because"}); err != nil {
			t.Fatal(err)
		}
	}

	<-reached
	for _, id := range []string{"two", "three"} {
		if err := e.start(Job{ID: id}); err != nil {
			t.Fatal(err)
		}
	}

	if err := e.cancel("two"); err != nil {
		t.Error(err)
	}

	if got := statuses(t, e); got != "one running, three waiting, two cancelled" {
		t.Errorf("before: got %s", got)
	}

	if err := e.close(); err != nil {
		t.Error(err)
	}

	stop := make(chan struct{})
	close(stop)
	e = open(stop)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got := statuses(t, e)
		if got == "one done, three done, two cancelled" {
			break
		}

		if time.Now().After(deadline) {
			t.Fatalf("after: got %s", got)
		}
	}

	all, err := e.jobs(10)
	one := func(j jobState) bool { return j.ID == "one" && j.result.Reason == "because whole" }
	if err != nil || !slices.ContainsFunc(all, one) {
		t.Errorf("result: got %+v, %v", all, err)
	}

	if err := e.recover(); err != nil {
		t.Error(err)
	}

	if err := e.close(); err != nil {
		t.Error(err)
	}

	want := map[string]int{"one first": 1, "one second": 2, "three first": 1, "three second": 1}
	for what, n := range want {
		if ran[what] != n {
			t.Errorf("%s: executed %d times, want %d", what, ran[what], n)
		}
	}

	if len(ran) != len(want) {
		t.Errorf("executed: got %v", ran)
	}
}

func statuses(t *testing.T, e engine) string {
	t.Helper()
	all, err := e.jobs(10)
	if err != nil {
		t.Fatal(err)
	}

	var words []string
	for _, j := range all {
		words = append(words, j.ID+" "+j.status)
	}

	slices.Sort(words) // jobs may have been added within one millisecond
	return strings.Join(words, ", ")
}
