package traffic_test

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
)

func TestFlowsEveryOpenerAndDirection(t *testing.T) {
	for _, opener := range []string{"near", "far"} {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			changes := []func(*record.Load){
				func(l *record.Load) { l.FlowSize = "1" },
				func(l *record.Load) { l.FlowSize, l.Verify = "exponential 30000", true },
				func(l *record.Load) { l.FlowSize, l.ConnectionRate = "websearch", 200 },
				func(l *record.Load) {
					l.FlowSize = "3000"
					l.ConnectionRate = 300
					l.Spacing = record.Isochronous
				},
			}
			if opener == "far" {
				changes = changes[1:3]
			}

			for _, change := range changes {
				load := tcpLoad(2, direction, opener)
				change(&load)
				name := opener + " opens " + direction + " " + load.FlowSize
				t.Run(name, func(t *testing.T) {
					if load.ConnectionRate > 0 {
						t.Parallel() // its rate leaves most of a core idle
					}

					steady.Run(t, func(t *steady.Trial) {
						near, far := ends(t, loopback4)
						window := 200 * time.Millisecond
						if load.ConnectionRate > 0 {
							// enough flows of a rate that cores which are busy with other things tell
							// nothing
							window = time.Second
						}

						got := carried(t, shortflow.Flows{}, near, far, load, newStopwatch(window))
						checkFlowAccounts(t, got, load, window.Seconds())
					})
				})
			}
		}
	}
}

func checkFlowAccounts(t *steady.Trial, got *record.Traffic, load record.Load, seconds float64) {
	t.Helper()
	s := got.ShortFlows
	if s == nil || s.Failed != 0 || s.Started != s.Completed+s.Unfinished {
		t.Fatalf("got %+v, want flows, all completed or under way", s)
	}

	if s.Started < 20 || s.Completed < 20 {
		t.Timedf("got %+v, want many flows", s)
	}

	begun := int64(0)
	took := int64(0)
	connected := int64(0)
	for _, c := range s.Classes {
		begun += c.Started
		for _, n := range c.Times {
			took += n.Flows
			if n.FromNs <= 0 {
				t.Errorf("%d flows took no time", n.Flows)
			}
		}
	}

	for _, n := range s.Connect {
		connected += n.Flows
	}

	if begun != s.Started || took != s.Completed || s.Asked != s.Confirmed || s.Asked < s.Completed {
		t.Errorf("classes: %d begun and %d completed of %d and %d; %d bytes asked for, %d confirmed", begun,
			took, s.Started, s.Completed, s.Asked, s.Confirmed)
	}

	if !s.Kept && (connected < s.Completed || connected > s.Started) {
		t.Errorf("%d handshakes, want at least %d and at most %d", connected, s.Completed, s.Started)
	}

	wantFlows := load.Streams
	if load.Direction == record.Both {
		wantFlows *= 2
	}

	if len(got.Flows) != wantFlows {
		t.Errorf("%d flows in the record, want %d", len(got.Flows), wantFlows)
	}

	for _, f := range got.Flows {
		if f.Corrupt != 0 {
			t.Errorf("stream %d %s: %d bytes are corrupt", f.Stream, f.Direction, f.Corrupt)
		}

		if f.SentBytes <= 0 || f.ReceivedBytes <= 0 || f.ReceiverNs <= 0 || load.Verify && f.Verified <= 0 {
			t.Timedf("stream %d %s: sent %d, received %d in %d ns, verified %d", f.Stream, f.Direction,
				f.SentBytes, f.ReceivedBytes, f.ReceiverNs, f.Verified)
		}
	}

	if load.ConnectionRate > 0 {
		want := load.ConnectionRate * seconds
		n := float64(s.Started)
		if n < want/2 || n > want*2 {
			t.Timedf("%v flows were begun, want about %v", n, want)
		}
	}

	for side, u := range got.Ends {
		if u.UserNs+u.SystemNs <= 0 {
			t.Errorf("%s: no CPU time", side)
		}
	}
}

// Even arrivals are counted to the flow, also where several threads make them.
func TestFlowsBegunAtARateAreThatMany(t *testing.T) {
	near, far := ends(t, loopback6)
	load := tcpLoad(3, record.Up, "near")
	load.IP = 6
	load.FlowSize = "100"
	load.ConnectionRate = 1000
	load.Spacing = record.Isochronous
	got := carried(t, shortflow.Flows{}, near, far, load, newStopwatch(500*time.Millisecond))
	s := got.ShortFlows
	if s.Started < 499 || s.Started > 501 || s.RateHz != 1000 {
		t.Errorf("%d flows begun in half a second at %v Hz, want 500", s.Started, s.RateHz)
	}
}

// A path that stalls slows no arrivals, and the flows that wait are as late as they are.
func TestFlowsKeepArrivingWhileThePathStalls(t *testing.T) {
	steady.Run(t, flowsKeepArriving)
}

func flowsKeepArriving(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := tcpLoad(1, record.Up, "near")
	load.FlowSize = "100"
	load.ConnectionRate = 200
	load.Spacing = record.Isochronous
	clock := newStopwatch(time.Second)
	relay := tcpRelay{rule: func(int) (time.Duration, bool) {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		in := traffic.Monotonic() - clock.timeline.Start
		if clock.timeline.Start > 0 && in > 3e8 && in < 7e8 {
			return time.Duration(7e8 - in), true
		}

		return 0, true
	}}
	relay.through(t, &far, &load)
	got := carried(t, shortflow.Flows{}, near, far, load, clock)
	s := got.ShortFlows
	slow := int64(0)
	for _, n := range s.Classes[0].Times {
		if n.FromNs >= int64(100*time.Millisecond) {
			slow += n.Flows
		}
	}

	// Of the 80 flows that begin in 400 ms, those of the first 300 wait for 100 or more.
	if s.Failed != 0 {
		t.Errorf("%d flows failed: %+v", s.Failed, s)
	}

	if s.Started < 199 || s.Started > 201 || slow < 50 || slow > 90 {
		t.Timedf("%d flows begun, %d of them slow, want 200 and about 60: %+v", s.Started, slow, s)
	}
}

func TestFlowsThatAreCutOffFail(t *testing.T) {
	near, far := ends(t, loopback4)
	load := tcpLoad(2, record.Up, "near")
	load.FlowSize = "100"
	r := tcpRelay{rule: func(n int) (time.Duration, bool) { return 0, n%4 != 3 }}
	r.through(t, &far, &load)
	got := carried(t, shortflow.Flows{}, near, far, load, newStopwatch(300*time.Millisecond))
	s := got.ShortFlows
	failures := int64(0)
	for _, n := range s.Failures {
		failures += n
	}

	if s.Started != s.Completed+s.Failed+s.Unfinished || s.Failed < 3 || failures != s.Failed ||
		s.Failed > r.cut.Load() || s.Completed < 2*s.Failed {
		t.Errorf("%d connections were cut: got %+v, want a quarter of the flows to fail", r.cut.Load(), s)
	}
}

func TestRequestsEveryOpener(t *testing.T) {
	for _, opener := range []string{"near", "far"} {
		for _, verify := range []bool{false, true} {
			t.Run(opener+" opens", func(t *testing.T) {
				steady.Run(t, func(t *steady.Trial) { requestsOpenedBy(t, opener, verify) })
			})
		}
	}
}

func requestsOpenedBy(t *steady.Trial, opener string, verify bool) {
	near, far := ends(t, loopback4)
	load := tcpLoad(3, record.Both, opener)
	load.RequestSize = 200
	load.ResponseSize = 3000
	load.Verify = verify
	got := carried(t, shortflow.Requests{}, near, far, load, newStopwatch(300*time.Millisecond))
	checkFlowAccounts(t, got, load, .3)
	s := got.ShortFlows
	if !s.Kept || s.Asked != 3200*s.Completed || s.Unfinished > 3 {
		t.Errorf("%d bytes in %d requests, %d unfinished, want 3200 in each and at most 3", s.Asked,
			s.Completed, s.Unfinished)
	}

	asked := record.Up
	answered := record.Down
	if opener == "far" {
		asked, answered = answered, asked
	}

	bytes := map[string]int64{}
	for _, f := range got.Flows {
		bytes[f.Direction] += f.ReceivedBytes
	}

	ratio := float64(bytes[answered]) / float64(bytes[asked])
	if ratio < 14 || ratio > 16 {
		t.Timedf("%d bytes %s and %d %s, want 15 times as many", bytes[asked], asked, bytes[answered],
			answered)
	}
}

func TestFlowsRefuseWhatTheyAreNot(t *testing.T) {
	flows := tcpLoad(1, record.Up, "near")
	requests := tcpLoad(1, record.Both, "near")
	for _, test := range []struct {
		name   string
		engine traffic.Engine
		load   record.Load
		change func(*record.Load)
	}{
		{"udp", shortflow.Flows{}, flows, func(l *record.Load) { l.Protocol, l.PacketSize = "udp", 100 }},
		{"paced", shortflow.Flows{}, flows, func(l *record.Load) { l.RateBps = 1e6 }},
		{"sizes", shortflow.Flows{}, flows, func(l *record.Load) { l.FlowSize = "tiny" }},
		{"rate", shortflow.Flows{}, flows, func(l *record.Load) { l.ConnectionRate = -1 }},
		{"one way", shortflow.Requests{}, requests, func(l *record.Load) { l.Direction = record.Up }},
		{"message", shortflow.Requests{}, requests, func(l *record.Load) { l.RequestSize = -1 }},
		{"paced requests", shortflow.Requests{}, requests, func(l *record.Load) { l.RateBps = 1e6 }},
	} {
		load := test.load
		test.change(&load)
		a := test.engine.Check(t.Context(), traffic.End{}, traffic.End{}, load)
		if a.State != check.No ||
			a.Reason == "" {
			t.Errorf("%s: got %v, want a no with its reason", test.name, a)
		}

		if _, err := test.engine.Offer(t.Context(), traffic.End{}, traffic.End{}, load,
			newStopwatch(0)); err == nil {
			t.Errorf("%s was offered", test.name)
		}
	}
}

// Clients of no load get nothing and harm nobody.
func TestFlowsRefuseUnauthenticatedClients(t *testing.T) { steady.Run(t, flowsRefuseUnauthenticated) }

func flowsRefuseUnauthenticated(t *steady.Trial) {
	near, far := ends(t, loopback4)
	load := tcpLoad(2, record.Down, "near")
	load.FlowSize, load.Port = "1000", freePort(t)
	clock := newStopwatch(400 * time.Millisecond)
	answers := make(chan int, 60)
	var others sync.WaitGroup
	others.Go(func() {
		time.Sleep(200 * time.Millisecond)
		for i := range 60 {
			c, err := net.Dial("tcp", net.JoinHostPort(loopback4.String(), strconv.Itoa(load.Port)))
			if err != nil {
				continue
			}

			says := [][]byte{append(traffic.Preamble("another", 0), make([]byte, 24)...), make([]byte, 1000),
				{}}[i%3]
			c.Write(says)
			c.SetDeadline(time.Now().Add(100 * time.Millisecond))
			n, _ := c.Read(make([]byte, 100))
			answers <- n
			c.Close()
		}
	})
	got, err := shortflow.Flows{}.Offer(t.Context(), near, far, load, clock)
	others.Wait()
	close(answers)
	if err != nil {
		t.Fatal(err)
	}

	checkFlowAccounts(t, got, load, .4)
	met := 0
	for n := range answers {
		met++
		if n > 0 {
			t.Errorf("another client got %d bytes, want none", n)
		}
	}

	if met < 3 {
		t.Errorf("%d other clients came, want more", met)
	}
}
