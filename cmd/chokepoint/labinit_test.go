package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestAskMachines: who sits at a terminal is asked for each machine that no flag names, again where the
// answer cannot be meant; where nobody is, a router need not be named.
func TestAskMachines(t *testing.T) {
	const client, router, server = "local", "ssh://root@192.0.2.1", "ssh://pc2"
	for name, x := range map[string]struct {
		flags, want record.Machines
		typed       string
		asked       int // questions
		says        string
	}{
		"all": {want: machines(client, router, server), typed: "\n" + router + "\n" + server + "\n", asked: 3},
		"the router too": {
			flags: machines(client, "", server),
			want:  machines(client, router, server),
			typed: " " + router + "\n",
			asked: 1,
		},
		"no router": {
			flags: machines(client, "", server),
			want:  machines(client, "", server),
			typed: "\n",
			asked: 1,
		},
		"not meant": {
			flags: machines("", router, ""),
			want:  machines(client, router, server),
			typed: "pc1\nlocal\n\nlocal\n" + router + "\n" + server + "\n",
			asked: 6,
			says:  `client: "pc1" is not a machine`,
		},
	} {
		person, tty := terminal(t)
		var shown strings.Builder
		p := &program{streams: streams{In: tty, Err: &shown}}
		p.connect()
		if _, err := person.WriteString(x.typed); err != nil {
			t.Fatal(err)
		}

		got := x.flags
		if err := askMachines(t.Context(), &got, p); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		diff := cmp.Diff(x.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}

		text := shown.String()
		if strings.Count(text, "[USER@]HOST") != x.asked || !strings.Contains(text, x.says) {
			t.Errorf("%s: shown is %q, want %d questions and %q", name, text, x.asked, x.says)
		}
	}

	answers := answered(machines(client, "", ""), machines(client, router, server))
	want := "; the same answers again: --router '" + router + "' --server '" + server + "'"
	if answers != want {
		t.Errorf("what was answered, as flags: got %q, want %q", answers, want)
	}

	p := &program{streams: streams{In: strings.NewReader("")}}
	named := machines(client, "", server)
	unnamed := machines(client, router, "")
	if err := askMachines(t.Context(), &named, p); err != nil || named.Router.At != "" {
		t.Errorf("both ends by flags, and nobody there: got %+v, %v", named, err)
	}

	if err := askMachines(t.Context(), &unnamed, p); err == nil {
		t.Error("nobody is there to name the server, and none is missed")
	}
}

func machines(client, router, server string) (m record.Machines) {
	m.Client.At = client
	m.Router.At = router
	m.Server.At = server
	return m
}
