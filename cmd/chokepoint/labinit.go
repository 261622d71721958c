package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/report"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// labFile is the default output file of lab init.
const labFile = "lab.yaml"

func newLabInitCommand(p *program) *cobra.Command {
	var m record.Machines
	var file string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a lab file of real machines, with their addresses and devices",
		Long: `Write a lab file of real machines: a client, a server and the router between. It asks
for the machines that the flags do not name, connects to all of them, finds the
addresses and devices that face each other, writes the file, and checks the lab as lab
check does.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file = cmp.Or(file, labFile)
			if !isLabFile(file) {
				return app.Usage("its name ends in .yaml", "lab file %q", file)
			}
			return labInit(cmd.Context(), file, m, p)
		},
	}
	addOutput(cmd, &file, "write to this `FILE` (default "+labFile+")")
	addMachineFlags(cmd.Flags(), &m)
	return cmd
}

// isLabFile reports whether a value of --lab is a lab file, not a kind of lab.
func isLabFile(text string) bool {
	return strings.HasSuffix(text, ".yaml") || strings.HasSuffix(text, ".yml")
}

func labInit(ctx context.Context, file string, m record.Machines, p *program) error {
	if _, err := os.Lstat(file); err == nil {
		return app.Usage("remove it, or name another file", "%s is there already", file)
	}

	flags := m
	if err := askMachines(ctx, &m, p); err != nil {
		return err
	}

	if err := cmp.Or(checkMachines(m, false), app.Absolute(app.PathsOf(&m)...)); err != nil {
		return err
	}

	err := p.WithMachines(ctx, m, func(l *lab.Lab, _ *labgrid.Held) error {
		if err := p.survey(ctx, l, nil); err != nil {
			return err
		}
		return userfile.Put(userfile.CreateReport, file, []byte(plan.MachinesText(found(l, m))))
	})
	if err != nil {
		p.note("%s is not written%s", file, answered(flags, m))
		return err
	}

	p.note("wrote %s; chokepoint run --lab %s measures it", file, file)
	return nil
}

// answered returns the flags that would give the same answers, or "" if there were no questions.
func answered(flags, m record.Machines) string {
	words := ""
	for _, a := range [...][3]string{{"--client", flags.Client.At, m.Client.At},
		{"--router", flags.Router.At, m.Router.At}, {"--server", flags.Server.At, m.Server.At}} {
		if a[1] != a[2] {
			words += " " + a[0] + " '" + a[2] + "'"
		}
	}

	if words != "" {
		words = "; the same answers again:" + words
	}

	return words
}

// found adds the detected addresses and devices to m.
func found(l *lab.Lab, m record.Machines) record.Machines {
	for _, ip := range []int{6, 4} {
		if far, err := l.End(0, 1, ip); err == nil {
			m.Server.Address = far.Target.String()
		}
	}

	if m.Router.At != "" {
		router := l.Topology.Routers[0]
		m.Router.LAN, m.Router.WAN = l.Device(router, "lan"), l.Device(router, "wan")
	}
	return m
}

// askMachines asks the user for the machines that the flags do not name.
func askMachines(ctx context.Context, m *record.Machines, p *program) error {
	if _, err := app.WrongMachines(*m, flagOf); err != nil {
		return err
	}

	switch {
	case p.Attended:
	case m.Client.At != "" && m.Server.At != "":
		return nil
	default:
		return app.Usage("name them: --client local --router ssh://HOST --server ssh://HOST",
			"the machines are not named, and no one is there to be asked for them")
	}

	answers := bufio.NewReader(p.In)
	for _, q := range []struct {
		into  *string
		asked string
		empty string // the meaning of an empty answer
	}{
		{&m.Client.At, "The client, on the LAN side: ssh://[USER@]HOST; nothing for local",
			record.LocalMachine},
		{&m.Router.At, "The router: ssh://[USER@]HOST; nothing if nobody can log in to it", ""},
		{&m.Server.At, "The server, beyond the router: local, or ssh://[USER@]HOST", ""},
	} {
		for done := *q.into != ""; !done; {
			fmt.Fprintf(p.Err, "%s: ", q.asked)
			text, err := within(ctx, func() (string, error) { return answers.ReadString('\n') })
			if err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}

			*q.into = cmp.Or(strings.TrimSpace(text), q.empty)
			if _, err = app.WrongMachines(*m, app.KeyName); err != nil {
				p.note("%v (%s)", err, check.HintOf(err))
			}

			done = err == nil && (*q.into != "" || q.into == &m.Router.At)
		}
	}

	return nil
}

// survey prints whether the requirements for measuring real machines are met. It returns an error if one is
// not.
func (p *program) survey(ctx context.Context, l *lab.Lab, held *labgrid.Held) error {
	all, err := trial.Survey(ctx, l, node.Engines())
	if held != nil {
		all = slices.Insert(all, 0, trial.Capability{
			Area:   "place",
			Name:   held.Place().Name,
			Answer: check.OKBecause("%s", held.Describe()),
		})
	}

	for _, name := range l.Nodes() {
		add := func(a check.Answer) {
			all = append(all, trial.Capability{Area: "found", Name: name, Answer: a})
		}
		v := trial.Found(ctx, l, name)
		if v == nil {
			continue
		}

		lines, unknown := report.Found(v, true)
		for _, line := range lines {
			add(check.OKBecause("%s", line))
		}

		for _, why := range unknown {
			add(check.CouldNotTell("%s", why))
		}
	}

	wide := 0
	for _, c := range all {
		wide = max(wide, len(c.Area+" "+c.Name))
	}

	for _, c := range all {
		text := fmt.Sprintf("%-*s  %-14s  %s\n", wide, c.Area+" "+c.Name, c.Answer.State, c.Answer.Reason)
		if c.Answer.Hint != "" {
			text += fmt.Sprintf("%-*s  hint: %s\n", wide+16, "", c.Answer.Hint)
		}

		if lineErr := p.line(c, text); lineErr != nil {
			return errors.Join(err, lineErr)
		}
	}

	if err == nil && !trial.Measurable(all) {
		err = exitError(codeError)
	}

	return err
}
