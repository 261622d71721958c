package host

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestLinesOfMuch: a line without an end neither stops the reading, which would block who writes it, nor is
// kept whole.
func TestLinesOfMuch(t *testing.T) {
	long := strings.Repeat("x", 3*longestLine)
	var got []string
	<-Lines(strings.NewReader("a\r\n\n"+long+"\nb\n"+long), func(line string) { got = append(got, line) })
	expect.Same(t, "lines", []string{"a", "", long[:longestLine], "b", long[:longestLine]}, got)
}

// TestRunKeepsTheEndOfStandardError: of what a command writes there Run keeps little, and an error quotes its
// end; one that writes without end is ended.
func TestRunKeepsTheEndOfStandardError(t *testing.T) {
	_, err := Run(t.Context(), Local(), Command{
		Path: "sh",
		Args: []string{"-c", "yes x | head -c 9000000 >&2; echo why >&2; exit 3"},
	})
	code, _ := ExitCode(err)
	if code != 3 || !strings.HasSuffix(err.Error(), "why") || len(err.Error()) > 600 {
		t.Errorf("got %.200v", err)
	}

	_, err = Run(t.Context(), Local(), Command{Path: "sh", Args: []string{"-c", "yes >&2"}})
	if err == nil {
		t.Error("who writes without end is not ended")
	}
}

// TestAKilledCommandIsNotWaitedFor: that something else has its output open keeps nobody waiting.
func TestAKilledCommandIsNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := Run(ctx, Local(), Command{Path: "sh", Args: []string{"-c", "setsid sleep 8 & wait"}})
	took := time.Since(begun)
	if err == nil || took > 7*time.Second {
		t.Errorf("got %v after %v", err, took)
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("some text"), uint8(4), uint8(3))
	f.Add([]byte(""), uint8(0), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, keep, piece uint8) {
		var end Tail
		for r := bytes.NewReader(text); ; {
			buf := make([]byte, int(piece)+1)
			n, err := r.Read(buf)
			if end.Add(buf[:n], int(keep)); err == io.EOF {
				break
			}
		}

		want := text[max(0, len(text)-int(keep)):]
		if !bytes.Equal(end.Bytes(), want) {
			t.Errorf("%q in pieces of %d: the last %d bytes are %q", text, int(piece)+1, keep, end.Bytes())
		}
	})
}
