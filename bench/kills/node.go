package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// lookRole makes this program look around in the namespace that it is started in, and print what it sees.
const lookRole = "look"

func lookMain(out io.Writer) error {
	i, err := lookAround()
	if err == nil {
		i, err = i.withKernel()
	}
	if err == nil {
		fmt.Fprintln(out, strings.Join(i.sorted(), "\n"))
	}
	return err
}

// withKernel adds what needs netlink.
func (i inventory) withKernel() (inventory, error) {
	devices, err := kernel.Devices()
	if err != nil {
		return nil, err
	}
	for _, dev := range devices {
		queue, err := kernel.RootQueue(dev)
		if err != nil {
			return nil, err
		}
		length, err := kernel.TxQueueLen(dev)
		if err != nil {
			return nil, err
		}
		features, err := kernel.Features(dev)
		if err != nil {
			return nil, err
		}
		i = append(i, fmt.Sprintf("device %s: queue %v, txqueuelen %d", dev, queue, length))
		for name, on := range features {
			if on {
				i = append(i, "device "+dev+": feature "+name)
			}
		}
	}
	tables, err := kernel.FilterTables()
	if err != nil {
		return nil, err
	}
	return append(i, fmt.Sprint("tables of nftables: ", tables)), nil
}

// lookInto lists what can be changed in the nodes of a lab that is up.
func (o options) lookInto(lab string, nodes []string) (inventory, error) {
	var all inventory
	for _, n := range nodes {
		look := []string{o.look, lookRole}
		if o.guests() && n == "router" {
			look = []string{"sh", "-c", lookInGuest}
		}
		said, err := o.say(append([]string{"lab", "exec", n, "--lab", lab, "--"}, look...)...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(said) {
			all = append(all, n+": "+strings.TrimSpace(line))
		}
	}
	return all.sorted(), nil
}
