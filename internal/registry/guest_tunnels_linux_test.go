package registry_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// TestGuestTunnels: between two routers with kernels of their own every kind of tunnel is to be had.
func TestGuestTunnels(t *testing.T) {
	l, _ := labtest.UpLocal(t, lab.Local{
		Dir:   t.TempDir(),
		Guest: labtest.Guest(t),
		Parts: registry.LabParts(),
	}, "site-to-site")
	for _, kind := range node.Tunnels() {
		t.Run(kind.Name(), func(t *testing.T) { tunnelSuite(t, l, kind) })
	}
}
