package kernel

import (
	"errors"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

func queue(t *testing.T, level string) qdisc.Queue {
	t.Helper()
	q, err := qdisc.ParseOne(level)
	must(t, err)
	return q
}

func TestRootQueue(t *testing.T) {
	levels := []string{"pfifo limit 123", "bfifo limit 99999", "pfifo_fast",
		"tbf rate 300M burst 128k limit 256k", "tbf rate 40G burst 1m limit 4m", "htb rate 300M burst 128k", "mq",
		"fq_codel limit 777 target 5ms interval 100ms", "fq limit 777",
		"cake bandwidth 300M nat overhead 44 mpu 84 atm", "codel limit 777", "sfq limit 100",
		"netem limit 77 delay 10ms loss 1%", "netem limit 77 delay 10ms duplicate 2% reorder 25%"}
	inNamespace(t, func(t *testing.T) {
		pair(t)
		for _, level := range levels {
			want := queue(t, level)
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
				off := float64(got.Values[name]) / float64(v)
				if off < 0.998 || off > 1.001 {
					t.Errorf("%s %s is %d, want %d", want.Kind, name, got.Values[name], v)
				}
			}
		}

		must(t, SetRootQueue("a0", qdisc.Queue{Kind: "noqueue"}))
		reads(t, "queue at the end", queue(t, "noqueue"))(QueueAt("a0", qdisc.Queue{}))
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
		must(t, SetRootQueue("a0", queue(t, "tbf rate 80k burst 2000 limit 2000")))
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
		must(t, try(queue(t, "tbf rate 1M burst 10000 limit 10000")))
		if err := try(qdisc.Queue{Kind: "dualpi2"}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("an unknown kind gives %v, want ErrUnsupported", err)
		}

		devices(t, "lo")
	})
}
