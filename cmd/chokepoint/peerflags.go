package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// addPeerFlags adds the flags that name the peer. The argument does is the part of their help that says what
// the command does with the peer.
func addPeerFlags(f *pflag.FlagSet, peer *app.Peer, does string) {
	f.StringVar(&peer.At, "peer", "", does+": a name or an address, with :PORT if it is not the default; "+
		"or iperf3://HOST, a third-party iperf3 server")
	f.StringVar(&peer.CodeFile, "peer-code-file", "", "read the peer's code from this `FILE`; else it comes "+
		"from the environment variable "+app.CodeVariable+", or from a prompt")
}

// askCode asks for the pairing code on a terminal, without echo.
func (p *program) askCode(ctx context.Context, terminal int, address string) (string, error) {
	fmt.Fprintf(p.Err, "Code that the peer at %s shows: ", address)
	before, err := term.GetState(terminal)
	if err != nil {
		return "", fmt.Errorf("read the peer's code: %v", check.Underlying(err))
	}

	text, err := within(ctx, func() ([]byte, error) { return term.ReadPassword(terminal) })
	fmt.Fprintln(p.Err)
	switch {
	case ctx.Err() != nil:
		return "", errors.Join(context.Cause(ctx), term.Restore(terminal, before))
	case err != nil:
		return "", fmt.Errorf("read the peer's code: %v", check.Underlying(err))
	}

	return string(text), nil
}

// within waits for the user's input until ctx ends. The program can then exit even if read is still blocked.
func within[T any](ctx context.Context, read func() (T, error)) (text T, err error) {
	answered := make(chan struct{})
	var got T
	var gotErr error
	go func() {
		defer close(answered)
		got, gotErr = read()
	}()
	select {
	case <-answered:
		return got, gotErr
	case <-ctx.Done():
		return text, context.Cause(ctx)
	}
}
