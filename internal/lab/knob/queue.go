package knob

import (
	"errors"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// Queue sets the root queueing discipline of a device. The state has the syntax of tc(8): KIND, then "key
// value" or a flag for each parameter, such as
//
//	noqueue
//	pfifo limit 1000
//	tbf rate 300M burst 128k limit 256k
//	cake bandwidth 300M besteffort nat
//
// htb has one class for all traffic. The canonical form has a fixed order, and includes all parameters except
// those whose default depends on the device. For the queue of one of the router's own classes, the state
// begins with that class, as in "parent 1:10 pfifo limit 1000". "default" is the queue that the kernel gives
// to a new class. Several queues of a device are separated by commas. The state of a queue that was read from
// a device begins with the handle of the queue.
func Queue() Knob {
	k := ofPorts(ofRouter(factor.Declaration{
		Policy:  true,
		Name:    "queue",
		Unit:    "kind and parameters as in tc(8), such as tbf rate 50M limit 256k",
		Rank:    15,
		Doc:     "queueing discipline of the router's ports",
		Without: without("", "with the default queue"),
		Plain:   qdisc.Plain,
	}), spelling[[]qdisc.Queue]{
		parse: qdisc.Parse,
		spell: qdisc.Spell,
		same:  func(want, got []qdisc.Queue) bool { return slices.EqualFunc(want, got, qdisc.Same) },
	}, func(dev string) ([]qdisc.Queue, error) {
		return readQueues(Place{Port: dev}, []qdisc.Queue{{}})
	}, func(dev string, all []qdisc.Queue) error {
		for _, q := range all {
			if err := kernel.SetRootQueue(dev, q); err != nil {
				return err
			}
		}
		return nil
	})
	k.readFor = readQueues
	k.check = checkQueues
	return k
}

// readQueues returns the queues that the wanted queues would replace.
func readQueues(p Place, want []qdisc.Queue) (all []qdisc.Queue, err error) {
	for _, w := range want {
		q, err := kernel.QueueAt(p.Port, w)
		if err != nil {
			return nil, err
		}

		all = append(all, q)
	}
	return all, nil
}

func checkQueues(p Place, all []qdisc.Queue) error {
	for _, q := range all {
		if q.Kind == qdisc.DefaultLeaf {
			continue
		}

		q.Handle, q.Parent = 0, 0 // so that it is tested as the root queue of a temporary link
		if err := checkQueue(p.Port, q); err != nil {
			return err
		}
	}
	return nil
}

func checkQueue(dev string, q qdisc.Queue) error {
	if q.Kind == "mq" {
		n, err := kernel.TxQueues(dev)
		if err == nil && n < 2 {
			err = cannot("mq needs a device with several queues; %s has one", dev)
		}
		return err
	}

	err := kernel.OnProbeLink(func(dev string) error { return kernel.SetRootQueue(dev, q) })
	if errors.Is(err, kernel.ErrUnsupported) {
		return check.WithHint(cannot("the kernel has no %s", q.Kind),
			"load the module sch_"+q.Kind+", or take a kernel that has it")
	}

	return err
}
