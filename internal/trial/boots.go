package trial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var errRebooted = errors.New("the router rebooted during the trial")

// bootsOf returns the boot ids of a lab's routers, for record.Trial.Boots. It hashes them with the run's
// id, so that they have no meaning outside the run.
func (c *Campaign) bootsOf(ctx context.Context, l *lab.Lab) map[string]string {
	var boots map[string]string
	for name, boot := range l.Boots(ctx) {
		sum := sha256.Sum256([]byte(c.Run.ID + " " + boot))
		put(&boots, name, hex.EncodeToString(sum[:4]))
	}
	return boots
}

// anotherBoot reports whether a router was rebooted between the previous trial and t.
func (c *Campaign) anotherBoot(t *record.Trial) bool {
	return len(t.Boots) > 0 && len(c.boots) > 0 && !maps.Equal(t.Boots, c.boots)
}

// sameRouter returns an error if a router has rebooted since the trial was set up.
func (a *attempt) sameRouter(ctx context.Context) error {
	now := a.c.bootsOf(ctx, a.lab)
	if len(a.t.Boots) > 0 && len(now) > 0 && !maps.Equal(now, a.t.Boots) {
		return errRebooted
	}
	return nil
}
