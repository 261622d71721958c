package main

import (
	"context"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// clock conducts one engine that runs alone.
type clock struct{ load record.Load }

func (c clock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(50*time.Millisecond)}
	w.Start = w.Begin + int64(c.load.Warmup)
	w.End = w.Start + int64(c.load.Duration)
	w.Stop = w.End + int64(200*time.Millisecond)
	return w, nil
}

func (clock) Progress(traffic.Progress) {}
