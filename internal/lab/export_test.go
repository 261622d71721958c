package lab

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// FollowOn is followOn for tests from outside.
func (l *Lab) FollowOn(ctx context.Context, s record.Setting) (Followed, error) {
	return l.followOn(ctx, s)
}
