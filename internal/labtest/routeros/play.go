package routeros

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Play is a router between 198.18.1.0/24, lan, and 198.18.2.0/24, wan, whose REST API is at an address until
// ctx ends, for a user tester with the password that stands in dir. There it writes where it is reached, its
// certificate's fingerprint, its process, and what it is configured to, twice a second. Its time and its
// ports' counters are those of this machine. More may be played with it.
func Play(ctx context.Context, address, dir string, with func(d *Device)) error {
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		return err
	}
	d := New()
	d.Each, d.Counters = 0, portCounters
	with(d)
	d.Tables["/interface"][0]["mac-address"] = "02:FC:00:00:77:01"
	d.Tables["/ip/address"] = []map[string]string{{"address": "198.18.1.2/24"}, {"address": "198.18.2.1/24"}}
	d.Tables["/ip/route"] = []map[string]string{
		{"dst-address": "198.18.1.0/24", "immediate-gw": "lan", "active": "true",
			"local-address": "198.18.1.2%lan"},
		{"dst-address": "198.18.2.0/24", "immediate-gw": "wan", "active": "true",
			"local-address": "198.18.2.1%wan"}}
	s := httptest.NewUnstartedServer(d.REST("tester", strings.TrimSpace(string(password)), time.Minute))
	s.Listener.Close()
	if s.Listener, err = net.Listen("tcp", address); err != nil {
		return err
	}
	s.StartTLS()
	defer s.Close()
	write := func(name, text string) error { // whole or not at all
		path := filepath.Join(dir, name)
		return errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
	}
	err = errors.Join(write("routeros.pid", strconv.Itoa(os.Getpid())),
		write("certificate", fmt.Sprintf("SHA256:%X", sha256.Sum256(s.Certificate().Raw))),
		write("address", s.Listener.Addr().String()))
	const tick = 500 * time.Millisecond
	for err == nil {
		var state []byte
		if state, err = json.Marshal(d.Config()); err == nil {
			err = write("configured", string(state))
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(tick):
			d.Pass(tick)
		}
	}
	return err
}

// portCounters are what the kernel counts on a port.
func portCounters(device string) map[string]uint64 {
	out := map[string]uint64{}
	from := "/sys/class/net/" + filepath.Base(device) + "/statistics/"
	for _, way := range []string{"rx", "tx"} {
		for theirs, ours := range map[string]string{"byte": "bytes", "packet": "packets", "drop": "dropped",
			"error": "errors"} {
			b, err := os.ReadFile(from + way + "_" + ours)
			n, wrong := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
			if err == nil && wrong == nil {
				out[way+"-"+theirs] = n
			}
		}
	}
	return out
}
