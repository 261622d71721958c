package lab_test

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// TestGuestTunnels: between two routers with kernels of their own every kind of tunnel is to be had.
func TestGuestTunnels(t *testing.T) {
	l, _ := labtest.UpGuest(t, t.TempDir(), "site-to-site", labtest.Guest(t), registry.LabParts())
	for _, kind := range node.Tunnels() {
		t.Run(kind.Name(), func(t *testing.T) { labtest.TunnelSuite(t, l, kind) })
	}
}
