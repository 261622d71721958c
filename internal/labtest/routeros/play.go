package routeros

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// socket is the name of the Unix socket for console sessions, in the directory passed to Play.
const socket = "console"

// Play emulates a router between 198.18.1.0/24 (lan) and 198.18.2.0/24 (wan) until ctx is done. Console runs
// commands on it. Play writes its process id to dir, and its configuration twice a second. Play reads
// the clock and the port counters of this machine. First, with may modify the device.
func Play(ctx context.Context, dir string, with func(d *Device)) error {
	d := New()
	d.Each, d.Counters = 0, portCounters
	with(d)
	d.Tables["/interface"][0]["mac-address"] = "02:FC:00:00:77:01"
	maps.Copy(d.Tables, tables(`/ip/address
address=198.18.1.2/24
address=198.18.2.1/24
/ip/route
dst-address=198.18.1.0/24|immediate-gw=lan|active=true|local-address=198.18.1.2%lan
dst-address=198.18.2.0/24|immediate-gw=wan|active=true|local-address=198.18.2.1%wan`))
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		return err
	}

	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer l.Close()
	sessions.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			sessions.Go(func() { d.session(ctx, c) })
		}
	})
	write := func(name, text string) error { // replaces files atomically
		path := filepath.Join(dir, name)
		return errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
	}
	err = write("routeros.pid", strconv.Itoa(os.Getpid()))
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

// session runs one command that a client sends, and copies its output until the command ends or the client
// disconnects.
func (d *Device) session(ctx context.Context, c net.Conn) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadString(0)
	if err != nil {
		return
	}

	line = strings.TrimSuffix(line, "\x00")
	if line == "/system/resource/print" { // print it in the form meant for people
		for name, value := range d.Tables["/system/resource"][0] {
			fmt.Fprintf(c, "%26s: %s\r\n", name, value)
		}
		return
	}

	p, err := d.Start(ctx, host.Command{Path: line})
	if err != nil {
		return
	}

	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _ = io.Copy(io.Discard, in) // until the client disconnects
		stop()
	})
	_, _ = io.Copy(c, p.Stdout())
	_, _ = p.Wait()
	c.Close()
	waiting.Wait()
}

// Console runs a command on the router that Play emulates in dir, as an SSH session would, and copies the
// command's output to out.
func Console(dir, line string, out io.Writer) error {
	c, err := net.Dial("unix", filepath.Join(dir, socket))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, line+"\x00"); err != nil {
		return err
	}

	_, err = io.Copy(out, c)
	return err
}

// portCounters returns the kernel's counters of a port, named as in RouterOS.
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
