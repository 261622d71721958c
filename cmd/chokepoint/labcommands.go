package main

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/ssh"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// showCommands notes what machines, and a power meter if there is one, have this machine run or give away,
// before it does: a lab file is a program.
func (p *program) showCommands(m record.Machines, power *record.Meter) error {
	var uses []string
	if m.SSHConfig != "" {
		commands, err := ssh.ConfigCommands(m.SSHConfig)
		if err != nil {
			return err
		}
		for _, line := range commands {
			uses = append(uses, "runs here, by "+m.SSHConfig+": "+line)
		}
	}
	if m.Firmware != nil {
		uses = append(uses, "runs here, to install a firmware: "+strings.Join(*m.Firmware, " ")+" LEVEL")
	}
	if power != nil {
		uses = append(uses, meter.Uses(*power))
	}
	if m.AllowSysctl != nil {
		uses = append(uses, "lets a plan set on each machine: "+strings.Join(*m.AllowSysctl, ", "))
	}
	for _, use := range uses {
		if use != "" {
			p.note("this lab %s", use)
		}
	}
	return nil
}
