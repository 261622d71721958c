package bed

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// An alarm is raised once, and delivered until it arrives.
func TestAlarms(t *testing.T) {
	dir := t.TempDir()
	var posted []string
	code := http.StatusInternalServerError
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		posted = append(posted, string(body))
		w.WriteHeader(code)
	}))
	defer s.Close()
	out := filepath.Join(dir, "out")
	command := write(t, filepath.Join(dir, "alarm"), "#!/bin/sh\ncat >>"+out+"\n", 0o700)
	a := &alarms{file: filepath.Join(dir, "alarms.json"), bed: "lab-1", how: plan.BedAlarm{
		Command: []string{command}, Webhook: s.URL + "/hook?secret"}}
	for range 2 {
		err := a.raise("version 2", store.BedAlarm{Kind: slower, Firmware: "2", Text: "\x1b[31mworse"})
		if err != nil {
			t.Fatal(err)
		}
	}

	err := a.deliver(t.Context())
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "500") {
		t.Errorf("a webhook that fails: got %v", err)
	}

	newest, err := a.newest(5)
	if err != nil || len(newest) != 1 || !strings.Contains(newest[0].Unsent, "500") ||
		strings.Contains(newest[0].Text, "\x1b") {
		t.Errorf("got %+v, %v", newest, err)
	}

	code = http.StatusNoContent
	for range 2 {
		if err := a.deliver(t.Context()); err != nil {
			t.Error(err)
		}
	}

	var got map[string]any
	if len(posted) != 2 || json.Unmarshal([]byte(posted[1]), &got) != nil || got["testbed"] != "lab-1" ||
		got["kind"] != slower || got["firmware"] != "2" || got["unsent"] != nil {
		t.Errorf("posted %q", posted)
	}

	text, err := os.ReadFile(out)
	if err != nil || strings.Count(string(text), "chokepoint-alarm/1") != 1 {
		t.Errorf("command got %q, %v, want the alarm once", text, err)
	}
}

// An alarm that the receiver refuses keeps back no other one, and no text is long.
func TestRefusedAlarm(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		if strings.Contains(string(body), "xxx") {
			w.WriteHeader(http.StatusBadRequest)
		} else {
			got = append(got, string(body))
		}
	}))
	defer s.Close()
	a := &alarms{file: filepath.Join(t.TempDir(), "alarms.json"), how: plan.BedAlarm{Webhook: s.URL}}
	for _, text := range []string{strings.Repeat("x", 1<<20), "slower"} {
		if err := a.raise(text, store.BedAlarm{Text: text}); err != nil {
			t.Fatal(err)
		}
	}

	if err := a.deliver(t.Context()); err == nil || !strings.Contains(err.Error(), "400") || len(got) != 1 {
		t.Errorf("got %q, %v, want the other alarm", got, err)
	}

	newest, err := a.newest(5)
	if err != nil || len(newest) != 2 || newest[0].Unsent != "" || len(newest[1].Text) > maxAlarmText+10 {
		t.Errorf("got %d alarms, %v", len(newest), err)
	}
}
