package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// serveIRTT starts irtt's server on the far node. It lives as long as the session.
func serveIRTT(ctx context.Context, b *bench) (host.Session, error) {
	s, err := rig.Start(ctx, b.lab, b.far.Node, "irtt", "server", "-i", "0", "-b", b.far.Addr.String()+
		":2112")
	time.Sleep(300 * time.Millisecond) // until it listens; a client that comes too early fails and says so
	return s, err
}

// irttResult is the part of irtt's JSON that is used.
type irttResult struct {
	RoundTrips []struct {
		Lost  string `json:"lost"`
		Delay struct {
			RTT int64 `json:"rtt"`
		} `json:"delay"`
	} `json:"round_trips"`
}

func irtt(ctx context.Context, b *bench) (measured, error) {
	out, err := rig.Exec(ctx, b.lab, b.near.Node, "", "irtt", "client", "-Q", "-i", interval.String(), "-d",
		fmt.Sprintf("%ds", b.seconds),
		"-l", strconv.Itoa(packetSize-headers), "-o", "-", b.far.Addr.String()+":2112")
	if err != nil {
		return measured{}, err
	}
	return readIRTT([]byte(out))
}

func readIRTT(out []byte) (measured, error) {
	var r irttResult
	if err := json.Unmarshal(out, &r); err != nil {
		return measured{}, fmt.Errorf("read irtt's result: %w", err)
	}
	m := measured{tool: "irtt", sent: len(r.RoundTrips)}
	for _, t := range r.RoundTrips {
		if t.Lost == "false" && t.Delay.RTT > 0 {
			m.rtt = append(m.rtt, float64(t.Delay.RTT))
		}
	}
	if len(m.rtt) == 0 {
		return measured{}, errors.New("read irtt's result: no round trip in it")
	}
	slices.Sort(m.rtt)
	return m, nil
}

func ping(ctx context.Context, b *bench) (measured, error) {
	out, err := rig.Exec(ctx, b.lab, b.near.Node, "", "ping", "-n", "-i",
		fmt.Sprintf("%.3f", interval.Seconds()), "-c",
		strconv.Itoa(b.count()),
		"-s", strconv.Itoa(packetSize-headers), "-W", "1", b.far.Addr.String())
	if err != nil {
		return measured{}, err
	}
	return readPing([]byte(out))
}

var (
	pingReply   = regexp.MustCompile(`(?m)^[0-9]+ bytes from .* time=([0-9.]+) ms`)
	pingSummary = regexp.MustCompile(`(?m)^([0-9]+) packets transmitted`)
)

// readPing reads what iputils' ping prints.
func readPing(out []byte) (measured, error) {
	m := measured{tool: "ping"}
	for _, found := range pingReply.FindAllSubmatch(out, -1) {
		ms, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return measured{}, fmt.Errorf("read ping's reply %q: %w", found[0], err)
		}
		m.rtt = append(m.rtt, ms*1e6)
	}
	total := pingSummary.FindSubmatch(out)
	if total == nil || len(m.rtt) == 0 {
		return measured{}, errors.New("read ping's output: no reply or no summary in it")
	}
	m.sent, _ = strconv.Atoi(string(total[1]))
	slices.Sort(m.rtt)
	return m, nil
}
