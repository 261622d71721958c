package driver

import (
	"os"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// sampling starts the shell's loop on this machine, which takes so many samples in silence.
func sampling(t *testing.T, still string) *shellWatch {
	t.Helper()
	w := &shellWatch{host: host.Local()}
	if err := w.begin(t.Context(), sampler+placeScript+watchScript, "1", "300", still); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	return w
}

// goes waits until the loop and its folder are gone.
func (w *shellWatch) goes(t *testing.T, within time.Duration) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, noFolder := os.Stat(w.dir)
		line, _ := os.ReadFile("/proc/" + w.pid + "/cmdline") // one that its session has not awaited has none
		if noFolder != nil && len(line) == 0 {
			return
		}
		if time.Since(begun) > within {
			t.Fatalf("after %v: folder %v, process %q; want neither", within, noFolder, line)
		}
	}
}

// TestSamplingEndsWithItsController, of which only its end of the session's input tells.
func TestSamplingEndsWithItsController(t *testing.T) {
	w := sampling(t, "100")
	w.input[1].Close()
	w.goes(t, 5*time.Second)
}

// TestSamplingEndsInSilence: it goes on while somebody keeps in touch, and not for much longer; nor does its
// session, once it hears something again.
func TestSamplingEndsInSilence(t *testing.T) {
	w := sampling(t, "3")
	for begun := time.Now(); time.Since(begun) < 6*time.Second; time.Sleep(500 * time.Millisecond) {
		if err := w.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(w.dir); err != nil {
		t.Fatalf("it has ended although somebody kept in touch: %v", err)
	}
	w.goes(t, 15*time.Second)
	if err := w.Keep(t.Context()); err != nil {
		t.Errorf("the session's input: %v", err)
	}
	<-w.ended
	if err := w.Keep(t.Context()); err == nil {
		t.Error("once the session has ended: got no error")
	}
}

// TestSamplingWithoutAFolder says why there is none.
func TestSamplingWithoutAFolder(t *testing.T) {
	w := &shellWatch{host: host.Local()}
	err := w.begin(t.Context(), `echo "no folder can be written" >&2; exit 69`)
	if want := "unsupported\nit says \"no folder can be written\", want a folder and a process"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
