package driver_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Ends of a tunnel: before the peer is known, and after.
const (
	bareEnd = `{"port":51821,"mtu":1420,"inner":["198.19.1.2/24","2001:2:0:101::2/64"],` +
		`"behind":{"198.19.65.2/32":"198.51.100.7"}`
	wholeEnd = bareEnd + `,"key":"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",` +
		`"endpoint":"192.0.2.10:51821","allowed":["198.19.1.1/32","2001:2:0:101::1/128"]}`
)

func endOf(value string) record.Setting {
	return record.Setting{Knob: "tunnel_end", Port: "tun1", Value: value}
}

// watched is a host that keeps all that is said to it and that it says.
type watched struct{ driver.Heard }

func (w watched) Start(ctx context.Context, c host.Command) (host.Process, error) {
	w.All.WriteString(c.Path + "\n")
	return w.Heard.Start(ctx, c)
}

// TestRouterOSTunnelEnd: an end is made in two steps by which its key stays, read back, counted, and removed;
// nobody asks for a key but the public one.
func TestRouterOSTunnelEnd(t *testing.T) {
	d := routeros.New()
	ctx := t.Context()
	before := d.Config()
	w := watched{driver.Heard{Host: d, All: &bytes.Buffer{}}}
	apply := func(value string) {
		t.Helper()
		if err := ros.Apply(ctx, w, endOf(value)); err != nil {
			t.Fatal(err)
		}

		if got, err := ros.Read(ctx, w, endOf("")); err != nil || got != value {
			t.Errorf("read back: got %s, %v, want %s", got, err, value)
		}
	}
	apply("none")
	apply(bareEnd + "}")
	key, err := ros.TunnelKey(ctx, w, "tun1")
	wg := d.Tables["/interface/wireguard"]
	if err != nil || key != wg[len(wg)-1]["public-key"] || len(key) != 44 {
		t.Errorf("public key: got %q, %v", key, err)
	}

	apply(wholeEnd)
	apply(wholeEnd) // again
	if again, err := ros.TunnelKey(ctx, w, "tun1"); again != key {
		t.Errorf("with a peer its public key is %q, %v, was %q", again, err, key)
	}

	d.Counters = func(string) map[string]uint64 {
		return map[string]uint64{"rx-byte": 1, "rx-packet": 2, "tx-byte": 3, "tx-packet": 4}
	}
	moved := map[string]string{}
	d.Moved = func(string) map[string]string { return moved }
	for _, tt := range []struct {
		rx, shaken string
		want       int64
	}{{"0", "", -1}, {"0", "0s", -1}, {"92", "", -1}, {"92", "1m23s", int64(83 * time.Second)}} {
		moved["rx"], moved["last-handshake"] = tt.rx, tt.shaken
		c, age, err := ros.TunnelMoved(ctx, w, "tun1")
		want := kernel.LinkCounters{RxBytes: 1, RxPackets: 2, TxBytes: 3, TxPackets: 4}
		diff := cmp.Diff(want, c)
		if diff != "" || err != nil || age != tt.want {
			t.Errorf("%+v: got %d, %v (-want +got):\n%s", tt, age, err, diff)
		}
	}

	var pinged []string
	d.Pinged = func(a string) { pinged = append(pinged, a) }
	err = errors.Join(ros.Ping(ctx, w, netip.MustParseAddr("198.19.1.1")),
		ros.Ping(ctx, w, netip.MustParseAddr("2001:2:0:101::1")))
	must(t, err)
	same(t, []string{"198.19.1.1", "2001:2:0:101::1"}, pinged, "ping")
	apply(bareEnd + "}")
	apply("none")
	unchanged(t, before, d)
	if _, _, err := ros.TunnelMoved(ctx, w, "tun1"); err == nil {
		t.Error("what an end that is gone has moved: got no error")
	}

	said := w.All.String()
	if strings.Contains(said, routeros.WireGuardSecret) || strings.Contains(said, "private") ||
		strings.Contains(said, "preshared") || !strings.Contains(said, key) {
		t.Errorf("a private key was asked for or told: %s", said)
	}

	for line := range strings.Lines(said) {
		for rest, more := line, true; more; {
			if _, rest, more = strings.Cut(rest, "/interface/wireguard/print"); more &&
				!strings.HasPrefix(rest, " as-value proplist=") {
				t.Errorf("a print that tells keys: %s", line)
			}
		}
	}
}

// TestRouterOSTunnelEndOfOthers: an interface of that name that is not ours is left alone.
func TestRouterOSTunnelEndOfOthers(t *testing.T) {
	d := routeros.New()
	d.Tables["/interface/wireguard"] = append(d.Tables["/interface/wireguard"],
		map[string]string{".id": "*FF", "name": "chokepoint-tun1", "public-key": "b2ZmaWNl"})
	before := d.Config()
	err := ros.Apply(t.Context(), d, endOf(wholeEnd))
	if err == nil || !strings.Contains(err.Error(), "already have such name") {
		t.Errorf("got %v, want that there is one", err)
	}

	if err := ros.Apply(t.Context(), d, endOf("none")); err != nil {
		t.Error(err)
	}

	unchanged(t, before, d)
}

// TestRouterOSTunnelEndThatFails: after each step that can fail, what was made before it is removed.
func TestRouterOSTunnelEndThatFails(t *testing.T) {
	for _, step := range []string{"/interface/wireguard/add", "/ip/address/add", "/ipv6/address/add",
		"/ip/route/add", "/interface/wireguard/peers/add"} {
		d := routeros.New()
		before := d.Config()
		d.Broken = step
		if err := ros.Apply(t.Context(), d, endOf(wholeEnd)); err == nil ||
			strings.Contains(err.Error(), routeros.WireGuardSecret) {
			t.Errorf("%s: got %v, want an error", step, err)
		}

		if err := ros.Apply(t.Context(), d, endOf("none")); err != nil {
			t.Errorf("%s: %v", step, err)
		}

		unchanged(t, before, d)
	}
}

// TestRouterOSTunnelEndGuarded: the guard removes an end when nobody keeps in touch with it, and after a
// reboot.
func TestRouterOSTunnelEndGuarded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *routeros.Device){
		"silence": func(d *routeros.Device) { d.Pass(2 * time.Minute) }, "reboot": (*routeros.Device).Reboot} {
		t.Run(name, func(t *testing.T) {
			d := routeros.New()
			ctx := t.Context()
			before := d.Config()
			guard, err := ros.Guard(ctx, d, "", nil, 45*time.Second)
			must(t, err)
			undo := []record.Setting{endOf("none"), endOf(bareEnd + "}")}
			for i, value := range []string{bareEnd + "}", wholeEnd} {
				_, err = ros.Guard(ctx, d, guard, undo[:i+1], 45*time.Second)
				must(t, err)
				must(t, ros.Apply(ctx, d, endOf(value)))
			}

			if len(d.Tables["/interface/wireguard/peers"]) != 4 {
				t.Fatalf("got %v", d.Tables["/interface/wireguard/peers"])
			}

			end(d)
			unchanged(t, before, d)
		})
	}
}
