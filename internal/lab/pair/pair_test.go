package pair

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// house is a listener with its address, and what it told.
type house struct {
	*Listener
	address string

	mu   sync.Mutex
	said []string
}

// open has a listener wait at the loopback device; a visit gets back what it sends until it leaves. The end
// of the test checks that all have left.
func open(t *testing.T, d *Listener) *house {
	t.Helper()
	ln := listen(t)
	h := &house{Listener: d, address: ln.Addr().String()}
	d.Tell = func(_ netip.AddrPort, what string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.said = append(h.said, what)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- d.Serve(ctx, ln, func(_ context.Context, v *Visit) error {
			_, err := io.Copy(v, v)
			v.Close()
			return err
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, ErrIdle) {
				t.Errorf("Serve: got %v, want nil", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Serve: still serving 5 s after it was told to end")
		}
	})
	return h
}

// told waits until the listener has said something.
func (h *house) told(t *testing.T, want string) {
	t.Helper()
	expect.Soon(t, 5*time.Second, "the listener's words have "+want, true, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.Contains(strings.Join(h.said, "\n"), want)
	})
}

func dial(t *testing.T, address string, code host.Secret) (*Visit, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return Dial(ctx, address, code)
}

// says sends a word and wants it back.
func says(t *testing.T, v *Visit, word string) {
	t.Helper()
	_, err := v.Write([]byte(word))
	must(t, err)
	b := make([]byte, len(word))
	if _, err := io.ReadFull(v, b); err != nil || string(b) != word {
		t.Errorf("came back: got %q, %v, want %q", b, err, word)
	}
}

func bytesOf(s host.Secret) (out []byte) {
	s.Use(func(b []byte) error { out = bytes.Clone(b); return nil })
	return out
}

func TestBothEndsMeet(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code})
	v, err := dial(t, h.address, code)
	must(t, err)
	says(t, v, "hello")
	if v.Remote.String() != h.address || len(bytesOf(v.Data)) != proofSize {
		t.Errorf("visit: got remote %s and a key of %d bytes, want %s and %d", v.Remote, len(bytesOf(v.Data)),
			h.address, proofSize)
	}

	v.Close()
	h.told(t, "the run has ended")
	again, err := dial(t, h.address, code)
	must(t, err)
	defer again.Close()
	if bytes.Equal(bytesOf(again.Data), bytesOf(v.Data)) {
		t.Error("data key: got the same in two runs, want another in each")
	}
}

func TestRefusals(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code, prove: 300 * time.Millisecond})
	for _, tt := range []struct {
		name    string
		connect func(t *testing.T)
		said    string
	}{
		{"wrong code", func(t *testing.T) {
			_, err := dial(t, h.address, NewCode())
			expect.Error(t, "dial", err, "refused: wrong code")
			expect.Hint(t, "dial", err, "code")
		}, "refused: wrong code"},
		{"port scan", func(t *testing.T) { plain(t, h.address, "") },
			"refused: hung up before it proved anything"},
		{"garbage", func(t *testing.T) { plain(t, h.address, "GET / HTTP/1.0\r\n\r\n") },
			"refused: does not speak the pair protocol"},
		{"silent", func(t *testing.T) { waitFor(t, h.address) }, "refused: proved nothing within 300ms"},
		{"truncated hello", func(t *testing.T) { overTLS(t, h.address, []byte(magic)) },
			"refused: hung up before it proved anything"},
		{"wrong hello", func(t *testing.T) { overTLS(t, h.address, make([]byte, helloSize)) },
			"refused: does not speak the pair protocol"},
		{"other version", func(t *testing.T) {
			a := overTLS(t, h.address, hello{9, make([]byte, proofSize)}.bytes())
			if a.verdict != otherVersion {
				t.Errorf("verdict: got %d, want %d", a.verdict, otherVersion)
			}
		}, "refused: its version of the pair protocol is 9, ours is 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.mu.Lock()
			h.said = nil
			h.mu.Unlock()
			tt.connect(t)
			h.told(t, tt.said)
			v, err := dial(t, h.address, code)
			if err != nil {
				t.Fatalf("afterwards, who knows the code: %v", err)
			}

			says(t, v, "still here")
			v.Close()
			h.told(t, "the run has ended")
		})
	}
}

// plain connects, sends something that is no TLS, and hangs up.
func plain(t *testing.T, address, text string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	defer c.Close()
	_, err = c.Write([]byte(text))
	must(t, err)
	if text != "" {
		io.Copy(io.Discard, c) // until the listener has had enough
	}
}

// waitFor connects and waits until it is thrown out.
func waitFor(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, context.DeadlineExceeded) {
		t.Error("a silent client was kept for 5 s, want it thrown out")
	}
}

// overTLS sends bytes inside TLS, hangs up that way, and returns the answer.
func overTLS(t *testing.T, address string, b []byte) answer {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer c.Close()
	_, err = c.Write(b)
	must(t, err)
	c.CloseWrite()
	a, _ := readAnswer(c)
	return a
}

// TestProofIsOfOneConnection replays what a controller said on another connection, as somebody between the
// two could.
func TestProofIsOfOneConnection(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code})
	// Somebody between: the controller meets him instead of the peer.
	between := listen(t)
	heard := make(chan []byte, 1)
	go func() {
		raw, err := between.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		cert, err := certificate()
		if err != nil {
			return
		}

		c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}})
		b := make([]byte, helloSize)
		io.ReadFull(c, b)
		heard <- b
		// He does not know the code, so any proof is made up.
		c.Write(answer{verdict: accepted, proof: make([]byte, proofSize)}.bytes())
	}()
	_, err := dial(t, between.Addr().String(), code)
	expect.Error(t, "dial somebody who does not know the code", err, "does not know the code")
	a := overTLS(t, h.address, <-heard)
	if a.verdict != wrongCode {
		t.Errorf("a proof of another connection: got verdict %d, want %d", a.verdict, wrongCode)
	}

	h.told(t, "refused: wrong code")
}

func TestSecondControllerIsRefused(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code})
	first, err := dial(t, h.address, code)
	must(t, err)
	defer first.Close()
	_, err = dial(t, h.address, code)
	expect.Error(t, "second", err, ErrBusy, "refused: another run is being served, of 127.0.0.1:")
	says(t, first, "undisturbed")
	first.Close()
	h.told(t, "the run has ended")
	second, err := dial(t, h.address, code)
	if err != nil {
		t.Fatalf("after the first has left: %v", err)
	}

	second.Close()
}

// TestDeadEndIsFoundOut: one that says nothing, and one that takes nothing.
func TestDeadEndIsFoundOut(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	s := host.Steady{Deadlined: near, Silence: 50 * time.Millisecond, Unread: 50 * time.Millisecond}
	_, err := s.Read(make([]byte, 1))
	expect.Error(t, "read from a dead end", err, os.ErrDeadlineExceeded)
	_, err = s.Write([]byte("hello"))
	expect.Error(t, "write to one that does not read", err, os.ErrDeadlineExceeded)
}

func TestListenerClosesWhenNobodyComes(t *testing.T) {
	ln := listen(t)
	d := &Listener{Code: NewCode(), Idle: 50 * time.Millisecond}
	err := d.Serve(context.Background(), ln, func(context.Context, *Visit) error { return nil })
	expect.Error(t, "Serve", err, ErrIdle)
}

// TestListenerClosesAfterOneVisit: a code that was good for one run is good for no other.
func TestListenerClosesAfterOneVisit(t *testing.T) {
	code := NewCode()
	h := open(t, &Listener{Code: code, Once: true})
	v, err := dial(t, h.address, code)
	must(t, err)
	says(t, v, "first")
	v.Close()
	h.told(t, "the run has ended")
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		v, err := dial(t, h.address, code)
		if err == nil {
			v.Close()
			t.Fatal("a second visit: got in, want that nobody listens")
		}

		if strings.Contains(err.Error(), "nobody") || strings.Contains(err.Error(), "refused") {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("a second visit: got %v, want that nobody listens", err)
		}
	}
}

// TestNobodyThere: errors of who dials have a next step.
func TestNobodyThere(t *testing.T) {
	ln := listen(t)
	address := ln.Addr().String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			c.Write([]byte("220 mail.example ESMTP\r\n"))
			c.Close()
		}
	}()
	_, err := dial(t, address, NewCode())
	expect.Error(t, "another service", err, "no chokepoint peer answers at")
	expect.Hint(t, "another service", err, "is it the port")
	ln.Close()
	_, err = dial(t, address, NewCode())
	expect.Error(t, "nobody", err, "reach the peer")
	expect.Hint(t, "nobody", err, "start chokepoint peer")
}

func TestCode(t *testing.T) {
	code := NewCode()
	text := Text(code)
	if len(text) != 34 || strings.Count(text, "-") != 6 {
		t.Errorf("text: got %d characters, %d hyphens, want seven groups of four", len(text),
			strings.Count(text, "-"))
	}

	for _, form := range []string{text, strings.ToLower(text), strings.ReplaceAll(text, "-", " ") + "\r\n",
		strings.ReplaceAll(strings.ReplaceAll(text, "0", "o"), "1", "l")} {
		got, err := ParseCode(form)
		if err != nil || !bytes.Equal(bytesOf(got), bytesOf(code)) {
			t.Errorf("a form of the code: got %v, want it to be read as the same", err)
		}
	}

	if got := fmt.Sprint(code, &code); strings.Contains(got, text) {
		t.Error("the code prints itself")
	}

	if bytes.Equal(bytesOf(NewCode()), bytesOf(code)) {
		t.Error("two codes are the same")
	}
}

// TestMistypedCode: one changed character is found, and no error shows what was typed.
func TestMistypedCode(t *testing.T) {
	text := strings.ReplaceAll(Text(NewCode()), "-", "")
	missed := 0
	for i := range text {
		for _, r := range alphabet {
			typed := text[:i] + string(r) + text[i+1:]
			_, err := ParseCode(typed)
			if typed == text {
				continue
			}

			if err == nil {
				missed++
			} else if !errors.Is(err, ErrCode) || strings.Contains(err.Error(), typed) {
				t.Fatalf("mistyped: got %q, want %v without what was typed", err, ErrCode)
			}
		}
	}

	if missed > 10 { // 868 changes, each unseen once in 1024
		t.Errorf("mistyped characters that were not found: got %d, want about 1", missed)
	}

	for _, text := range []string{"", "0", strings.Repeat("U", 28), strings.Repeat("0", 29),
		strings.Repeat("é", 14)} {
		if got, err := ParseCode(text); !errors.Is(err, ErrCode) || !got.Empty() {
			t.Errorf("%q: got %v, want %v and no code", text, err, ErrCode)
		}
	}
}

func FuzzParseHello(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(magic))
	f.Add(hello{version, make([]byte, proofSize)}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		switch {
		case err != nil:
			if h.version != 0 || h.proof != nil {
				t.Errorf("%x: got %+v with an error, want nothing", b, h)
			}
		case !bytes.Equal(h.bytes(), b):
			t.Errorf("%x: read and written again it is %x", b, h.bytes())
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(answer{verdict: accepted, proof: make([]byte, proofSize)}.bytes())
	f.Add(answer{verdict: busy, reason: "another run"}.bytes())
	f.Add([]byte{1, 255, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAnswer(bytes.NewReader(b))
		switch {
		case err != nil:
			if a.verdict != 0 || a.proof != nil || a.reason != "" {
				t.Errorf("%x: got %+v with an error, want nothing", b, a)
			}
		case len(a.reason) > 3*maxReason || strings.ContainsFunc(a.reason,
			func(r rune) bool { return r < ' ' }):
			t.Errorf("%x: got the reason %q, want a short one that steers no terminal", b, a.reason)
		}
	})
}

func FuzzParseCode(f *testing.F) {
	f.Add(Text(NewCode()))
	f.Add("0000-0000-0000-0000-0000-0000-0000")
	f.Fuzz(func(t *testing.T, text string) {
		code, err := ParseCode(text)
		if err != nil {
			if !code.Empty() {
				t.Error("an error with a code")
			}
			return
		}

		again, err := ParseCode(Text(code))
		if err != nil || !bytes.Equal(bytesOf(again), bytesOf(code)) {
			t.Errorf("a code that was read cannot be written and read again: %v", err)
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
