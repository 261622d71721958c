package remote_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/killed"
)

var kills = flag.Int("kills", 0, "how many times to kill a testbed and what it needs")

// killsPlan changes a setting of the router, and measures the idle path before each load.
const killsTrials = 9
const killsPlan = `name: kills
method: {duration: 500ms, warmup: 100ms, cooldown: 100ms, idle: 200ms, runs: 3}
matrix:
  direction: [up, down]
  ip: [4]
  pacing: [2M]
  link_mtu@router: [1400]
measure: {verify: false}
`

// killsPause is the longest time between two kills.
const killsPause = 15 * time.Second

// TestBedKills: a testbed whose machines are a place of labgrid and whose jobs and runs are in a PostgreSQL
// database goes on whichever of them dies, or loses its network, and leaves the router as it was.
func TestBedKills(t *testing.T) {
	if *kills == 0 || *labgridPath == "" {
		t.Skip("skip: a testbed is killed for half an hour: -kills says how often, -labgrid where labgrid is")
	}

	t.Setenv("PATH", *labgridPath+":"+os.Getenv("PATH"))
	f := newFarm(t)
	jobs, socket := onLink(t, apart.Postgres(t))
	runs, _ := onLink(t, apart.Postgres(t))
	d := newDatabase(t, f, socket)
	random := rand.New(rand.NewPCG(*seed, uint64(*kills)))
	b := &killed.Bed{
		Dir:    f.Dir,
		Trials: killsTrials,
		Team:   runs,
		Random: random,
		Pause:  killsPause,
		Command: func(args ...string) *exec.Cmd {
			return f.command(context.Background(), args...)
		},
		Faults: map[string]func(){
			"database": func() {
				if err := apart.CrashPostgres(); err != nil {
					t.Error(err)
				}
			},
			"coordinator": func() {
				f.stop()
				f.start()
			},
			"network": func() { d.cut(time.Duration(1e9+random.Float64()*9e9), random.IntN(2) == 0) },
		},
	}
	if err := os.WriteFile(f.At("kills-lab.yaml"), fmt.Appendf(nil, killsLab, f.keys), 0o600); err != nil {
		t.Fatal(err)
	}

	before := map[string][]string{}
	for name, m := range f.machines {
		var err error
		if before[name], err = m.settled(); err != nil {
			t.Fatal(err)
		}
	}

	began := time.Now()
	b.Write(t, killsPlan, fmt.Sprintf("lab: kills-lab.yaml\ndatabase: %q\nstore: %q\n", jobs, runs))
	locked(t, func() { b.Kill(t, *kills) })
	t.Logf("seed %d, %s", *seed, time.Since(began).Round(time.Second))
	f.free()
	for name, m := range f.machines {
		now, err := m.settled()
		if err != nil {
			t.Fatal(err)
		}

		if found := slices.Concat(difference(before[name], now, ""), m.traces()); len(found) > 0 {
			t.Errorf("%s is not as found: %s", name, strings.Join(found, "\n"))
		}
	}
}

const killsLab = "ssh_config: %s/config\nplace: {name: board-7}\n"

// database is PostgreSQL's place in a network: what connects to it comes over a link.
type database struct {
	t      *testing.T
	space  string
	listen net.Listener

	mu   sync.Mutex
	open map[net.Conn]bool // both ends of each connection
}

const databaseAt = "10.97.0.2:5432"

func newDatabase(t *testing.T, f *farm, socket string) *database {
	t.Helper()
	d := &database{t: t, space: f.prefix + "database", open: map[net.Conn]bool{}}
	for _, script := range [][2]string{
		{"", "netns add " + d.space},
		{f.controller(), "link add db type veth peer name db0 netns " + d.space +
			"\naddr add 10.97.0.1/30 dev db\nlink set db up"},
		{d.space, "link set lo up\naddr add 10.97.0.2/30 dev db0\nlink set db0 up"},
	} {
		words := []string{"ip", "-batch", "-"}
		if script[0] != "" {
			words = slices.Insert(words, 1, "-n", script[0])
		}

		if _, err := say(script[1]+"\n", words...); err != nil {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() {
		if _, err := say("", "ip", "netns", "del", d.space); err != nil {
			t.Error(err)
		}
	})
	var err error
	if d.listen, err = listenIn(d.space, databaseAt); err != nil {
		t.Fatal(err)
	}

	d.serve(socket)
	return d
}

// onLink returns the URL under which a database is reached over the link, and its server's socket.
func onLink(t *testing.T, place string) (over, socket string) {
	t.Helper()
	u, err := url.Parse(place)
	if err != nil {
		t.Fatal(err)
	}

	socket = u.Query().Get("host") + "/.s.PGSQL.5432"
	u.Host, u.RawQuery = databaseAt, "sslmode=disable"
	return u.String(), socket
}

// serve passes connections on to PostgreSQL's socket.
func (d *database) serve(socket string) {
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := d.listen.Accept()
			if err != nil {
				return // closed
			}

			s, err := net.Dial("unix", socket)
			if err != nil { // it has crashed
				_ = c.Close()
				continue
			}

			for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
				d.mu.Lock()
				d.open[way[0]] = true
				d.mu.Unlock()
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // until one of them ends
					d.close(way[0], way[1])
				})
			}
		}
	})
	d.t.Cleanup(func() {
		_ = d.listen.Close()
		d.drop()
		all.Wait()
	})
}

func (d *database) close(of ...net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range of {
		_ = c.Close()
		delete(d.open, c)
	}
}

// drop ends all connections.
func (d *database) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.Close()
	}
}

// cut cuts the link for some time. If lost, the connections are gone meanwhile.
func (d *database) cut(during time.Duration, lost bool) {
	d.t.Helper()
	for _, state := range []string{"down", "up"} {
		if _, err := say("", "ip", "-n", d.space, "link", "set", "db0", state); err != nil {
			d.t.Error(err)
		}

		if state == "up" {
			return
		}

		if lost {
			d.drop()
		}

		time.Sleep(during)
	}
}
