package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestConsolesFollowNoLink: a guest's console, which says what the guest wants, is kept in a file of its own.
func TestConsolesFollowNoLink(t *testing.T) {
	labs := t.TempDir()
	kept := t.TempDir()
	o := Local{ID: "x", Dir: labs, Topology: record.Topology{Name: "forward", Routers: []string{"router"}}}
	precious := filepath.Join(kept, "precious")
	to := filepath.Join(kept, "forward-router.console")
	for _, err := range []error{os.Mkdir(o.dir(), 0o700), os.WriteFile(precious, []byte("old"), 0o600),
		os.WriteFile(consoleOf(o.dir(), "router"), []byte("new"), 0o600), os.Symlink("precious", to),
		o.keepConsoles(kept)} {
		must(t, err)
	}

	b, err := os.ReadFile(to)
	info, statErr := os.Lstat(to)
	if err != nil || statErr != nil || string(b) != "new" || info.Mode() != 0o600 {
		t.Errorf("console: got %q, %v, %v, want a file for this user alone", b, info.Mode(), err)
	}

	if b, err := os.ReadFile(precious); err != nil || string(b) != "old" {
		t.Errorf("what the link led to: got %q, %v, want it as it was", b, err)
	}
}

func TestLastSaid(t *testing.T) {
	for log, want := range map[string]string{
		"": "", "chokepoint lab-holder: make: no\n\n": "chokepoint lab-holder: make: no",
		"note\nfatal error: runtime: out of memory\n\ngoroutine 1:\n\trax 0x0\ngs     0x0\n": "fatal " +
			"error: runtime: out of memory",
		"panic: \x1b[2Jnil\n\ngoroutine 1 [running]:\nexit\n": "panic: [2Jnil",
	} {
		expect.Same(t, fmt.Sprintf("of %q", log), want, lastSaid(log))
	}
}

// TestAGuestSeesNoKeyOfTheUser: a guest without a key of its own is offered none, nor an agent.
func TestAGuestSeesNoKeyOfTheUser(t *testing.T) {
	for key, offers := range map[string]bool{"": false, "/guest.key": true} {
		c, err := (&foreign{login: vm.Login{Method: vm.LoginSSH, User: "root", Key: key}}).ssh("sh")
		args := strings.Join(c.Args, " ")
		if err != nil || !strings.Contains(args, "IdentitiesOnly=yes -o IdentityAgent=none") ||
			strings.Contains(args, "PubkeyAuthentication=no") == offers {
			t.Errorf("key %q: got %s, %v, want keys offered: %v", key, args, err, offers)
		}
	}
}
