package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// TestAlone: a machine is one controller's, who may take it again and again, until that one's agent ends,
// which is waited for a little. Who only asks takes nothing.
func TestAlone(t *testing.T) {
	apart.Network(t, func(ctx context.Context) error {
		var first, second alone
		if err := second.free(ctx); err != nil || second.lock != nil {
			t.Errorf("nobody is there: got %v", err)
		}

		for range 2 {
			if err := first.take(ctx); err != nil {
				return err
			}
		}

		for i, try := range []func(context.Context) error{second.take, second.free} {
			if err := try(ctx); !errors.Is(err, errTaken) || check.HintOf(err) == "" {
				t.Errorf("question %d of a second controller: got %v, want an error with a hint", i, err)
			}
		}

		ended := time.AfterFunc(500*time.Millisecond, func() { first.lock.Close() })
		defer ended.Stop()
		if err := second.take(ctx); err != nil {
			return fmt.Errorf("after the first has gone: %w", err)
		}

		return second.lock.Close()
	})
}

// TestOthersKeepNobodyOff: what another user of the machine makes is not taken for a controller.
func TestOthersKeepNobodyOff(t *testing.T) {
	apart.Network(t, func(ctx context.Context) error {
		const nobody = 65534
		hers := exec.Command("sleep", "60")
		hers.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := hers.Start(); err != nil {
			return err
		}
		defer hers.Wait()
		defer hers.Process.Kill()
		// In the name of a process that has it not, of hers, and of none.
		for _, name := range []string{"1-x", fmt.Sprintf("%d-x", hers.Process.Pid), "x", "-"} {
			l, err := net.Listen("unix", aloneName+name)
			if err != nil {
				return err
			}
			defer l.Close()
		}

		dir, err := os.MkdirTemp("/tmp", "chokepoint-guard-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		var a alone
		err = errors.Join(os.WriteFile(dir+"/touched", []byte("1\n"), 0o644),
			os.WriteFile(dir+"/pid", fmt.Appendln(nil, hers.Process.Pid), 0o644),
			os.Chown(dir, nobody, nobody))
		if err == nil {
			err = a.take(ctx)
		}

		if err == nil {
			err = a.lock.Close()
		}

		return err
	})
}
