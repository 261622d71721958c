package main

import (
	"net"
	"net/netip"
	"testing"
)

// TestServeAddresses: the names of addresses can be added, an address has the form that browsers read, and
// localhost need not be this machine.
func TestServeAddresses(t *testing.T) {
	o := serveOptions{listen: "[fe80::1%eth0]:0", hosts: []string{"2001:db8::1", "192.0.2.1"}, remote: true}
	at, err := o.check()
	if err != nil {
		t.Fatal(err)
	}

	const want = "http://[fe80::1%25eth0]:8080/\n"
	if got, err := at.urls(&net.TCPAddr{Port: 8080}); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}

	for text, here := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "192.0.2.1:1": false} {
		err := at.onlyHere(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)))
		if (err == nil) != here {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
