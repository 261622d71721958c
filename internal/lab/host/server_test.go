package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// heard is a connection on which nobody listens and a reader's bytes come.
type heard struct{ io.Reader }

func (heard) Write(b []byte) (int, error) { return len(b), nil }
func (heard) Close() error                { return nil }

// broken is a reader that ends with an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func TestServeSaysHowItEnded(t *testing.T) {
	whole := appendFrame(nil, frame{frameOpen, 1, []byte(`{"verb":"clock"}`)})
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-1]++
	tests := []struct {
		name string
		from io.Reader
		want string
	}{
		{"the controller hung up", bytes.NewReader(whole), ""},
		{"the controller died in a frame", bytes.NewReader(whole[:len(whole)-3]), ""},
		{"the controller died with answers unread", broken{fmt.Errorf("read: %w", syscall.ECONNRESET)}, ""},
		{"damaged payload", bytes.NewReader(damaged), "damaged payload"},
		{"no protocol of ours", strings.NewReader("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
			"damaged header"},
		{"failing connection", broken{syscall.EIO}, syscall.EIO.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect.Error(t, "end", Serve(t.Context(), heard{tt.from}, nil), tt.want)
		})
	}
}

// TestServeEndsWithItsContext: the closed connection is then no fault.
func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	cancel()
	conn := struct {
		io.Reader
		io.Writer
		io.Closer
	}{in, io.Discard, in}
	if err := Serve(ctx, conn, nil); err != nil {
		t.Errorf("got %v, want nil", err)
	}

	_, err := out.Write([]byte("x"))
	expect.Error(t, "connection after the end", err, io.ErrClosedPipe)
}
