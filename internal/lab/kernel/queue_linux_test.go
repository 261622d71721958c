package kernel

import (
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

func TestRootQueue(t *testing.T) {
	queues := []qdisc.Queue{
		{Kind: "pfifo", Values: map[string]uint64{"limit": 123}},
		{Kind: "bfifo", Values: map[string]uint64{"limit": 99999}},
		{Kind: "pfifo_fast", Values: nil},
		{Kind: "tbf", Values: map[string]uint64{"rate": 300e6, "burst": 131072, "limit": 262144}},
		{Kind: "tbf", Values: map[string]uint64{"rate": 40e9, "burst": 1 << 20, "limit": 4 << 20}},
		{Kind: "htb", Values: map[string]uint64{"rate": 300e6, "burst": 131072}},
		{Kind: "mq", Values: nil},
		{Kind: "fq_codel", Values: map[string]uint64{"limit": 777, "target": 5000, "interval": 100000}},
		{Kind: "fq", Values: map[string]uint64{"limit": 777}},
		{Kind: "cake", Values: map[string]uint64{"bandwidth": 300e6, "nat": 1, "overhead": 44, "mpu": 84, "cells": 1}},
		{Kind: "codel", Values: map[string]uint64{"limit": 777}},
		{Kind: "sfq", Values: map[string]uint64{"limit": 100}},
		{Kind: "netem", Values: map[string]uint64{"limit": 77, "delay": 10000, "loss": 10000}},
		{Kind: "netem", Values: map[string]uint64{"limit": 77, "delay": 10000, "duplicate": 20000, "reorder": 250000}},
	}
	inNamespace(t, func(t *testing.T) {
		pair(t)
		for _, want := range queues {
			err := SetRootQueue("a0", want)
			if errors.Is(err, ErrUnsupported) {
				if must := want.Kind; must == "tbf" || must == "htb" || must == "pfifo" {
					t.Errorf("%v, want it to be there", err)
				}
				t.Logf("not on this kernel: %v", err)
				continue
			}
			if err != nil {
				t.Error(err)
				continue
			}
			got, err := QueueAt("a0", qdisc.Queue{})
			if err != nil || got.Kind != want.Kind {
				t.Errorf("queue is %v (%v), want %v", got, err, want)
			}
			for name, v := range want.Values {
				if off := float64(got.Values[name]) / float64(v); off < 0.998 || off > 1.001 {
					t.Errorf("%s %s is %d, want %d", want.Kind, name, got.Values[name], v)
				}
			}
		}
		must(t, SetRootQueue("a0", qdisc.Queue{Kind: "noqueue"}))
		if got, err := QueueAt("a0", qdisc.Queue{}); err != nil || got.Kind != "noqueue" {
			t.Errorf("queue is %v (%v) at the end, want noqueue", got, err)
		}
		stats, err := Qdiscs("a0")
		if err != nil || len(stats) != 1 || stats[0].Handle != 0 {
			t.Errorf("queues at the end are %+v (%v), want only the default", stats, err)
		}
	})
}

func TestQueueCountsDropsOfAFullQueue(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		must(t, AddAddress("a0", prefix("198.18.0.1/24")))
		neighbour(t, "a0", "198.18.0.2", "b0")
		slow := map[string]uint64{"rate": 80_000, "burst": 2000, "limit": 2000}
		must(t, SetRootQueue("a0", qdisc.Queue{Kind: "tbf", Values: slow}))
		send(t, "198.18.0.2:9", 200)
		stats, err := Qdiscs("a0")
		must(t, err)
		if len(stats) == 0 || string(stats[0].Kind) != "tbf" || stats[0].Drops < 100 ||
			stats[0].Packets == 0 {
			t.Errorf("queue counts %+v, want most of 200 packets dropped", stats)
		}
	})
}

func TestOnProbeLinkLeavesNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		try := func(q qdisc.Queue) error {
			return OnProbeLink(func(dev string) error { return SetRootQueue(dev, q) })
		}
		must(t, try(qdisc.Queue{Kind: "tbf",
			Values: map[string]uint64{"rate": 1e6, "burst": 10000, "limit": 10000}}))
		if err := try(qdisc.Queue{Kind: "dualpi2"}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("an unknown kind gives %v, want ErrUnsupported", err)
		}
		devices(t, "lo")
	})
}
