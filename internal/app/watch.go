package app

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// WatchOptions configure Watch.
type WatchOptions struct {
	Every time.Duration // interval between two reports
	For   time.Duration // time to watch; 0 means until ctx ends
	// Found is called once with the devices, queues and rules on the path of packets, if they can be read.
	Found func(*record.Inventory) error
	// Show is called with each report.
	Show func(*analysis.Glance) error
}

// Watch reports the state of the router in m during traffic from any source. It changes nothing on the
// router.
func (a *App) Watch(ctx context.Context, m record.Machines, o WatchOptions) (err error) {
	if err := Prepare(a.Dirs.Runtime); err != nil {
		return err
	}
	defer a.Dirs.ClearRuntime()
	if err := Absolute(PathsOf(&m)...); err != nil {
		return err
	}

	l, err := a.Remote("watch-"+NewID(), m, nil).Reach(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()

	looking := ctx
	if o.For > 0 {
		var stop func()
		looking, stop = context.WithTimeout(ctx, o.For)
		defer stop()
	}

	router := l.Topology.Routers[0]
	v := trial.Found(ctx, l, router)
	if v != nil {
		if err := o.Found(v); err != nil {
			return err
		}
	}

	show := func(facts record.NodeFacts, data record.NodeData, from, to int64) error {
		return o.Show(analysis.LookAt(facts, data, from, to))
	}
	return trial.Look(looking, l, router, node.Probes(), o.Every, show)
}

// PathsOf returns pointers to the paths in a description of machines.
func PathsOf(m *record.Machines) []*string {
	paths := []*string{&m.SSHConfig, &m.Client.Identity, &m.Router.Identity, &m.Server.Identity}
	if m.Firmware != nil && strings.ContainsRune((*m.Firmware)[0], '/') {
		paths = append(paths, &(*m.Firmware)[0])
	}

	if m.Flash != nil {
		paths = append(paths, &m.Flash.Image)
	}

	if m.Place != nil {
		paths = append(paths, &m.Place.Config)
	}

	return slices.DeleteFunc(paths, func(path *string) bool { return *path == "" })
}

// Absolute makes paths absolute. Empty paths stay empty.
func Absolute(paths ...*string) (err error) {
	for _, path := range paths {
		if *path != "" && err == nil {
			*path, err = filepath.Abs(*path)
		}
	}
	return err
}
