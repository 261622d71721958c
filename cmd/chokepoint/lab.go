package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/labgrid"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

func newLabCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "lab",
		SuggestFor: []string{"vm"},
		Short:      "Bring testbeds up and down, inspect and restore them",
		Long: `A lab is client, router and server as network namespaces on this machine. run makes its
own lab. lab up makes one that stays, for run --attach and for inspection.

Use up, exec and down for a lab to look around in. Use check to see whether this machine
can carry labs, and image before the first run with --lab vm. Use init for machines of
your own, and conform before a long run on such a router. Use list and restore after a
run was killed.`,
	}
	cmd.AddCommand(newLabInitCommand(p), newLabUpCommand(p), newLabListCommand(p), newLabExecCommand(p),
		newLabCheckCommand(p), newLabConformCommand(p), newLabDownCommand(p), newLabRestoreCommand(p),
		newLabImageCommand(p))
	return cmd
}

func newLabUpCommand(p *program) *cobra.Command {
	var o labOptions
	cmd := &cobra.Command{
		Use:   "up [TOPOLOGY]",
		Short: "Start a lab that stays up until lab down",
		Long: "Start a lab that stays up until lab down, and print its id and addresses.\n" +
			"TOPOLOGY is one of: " + list(topologyNames()) + ".\nThe first is the default.",
		Args:      optionalArg,
		ValidArgs: topologyNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return labUp(cmd.Context(), append(args, lab.Topologies()[0].Name)[0], o, p)
		},
	}
	o.addFlags(cmd.Flags())
	return addJSON(cmd, "print the lab as a JSON object")
}

func topologyNames() []string {
	return each(lab.Topologies(), func(t record.Topology) string { return t.Name })
}

// shownLab is a lab in the output of lab up and lab list.
type shownLab struct {
	ID        string                  `json:"id"`
	Topology  string                  `json:"topology"`
	Started   time.Time               `json:"started"`
	Detached  bool                    `json:"detached"` // stays until lab down; if false, belongs to a run
	Alive     bool                    `json:"alive"`
	Addresses map[string][]netip.Addr `json:"addresses,omitempty"` // node → addresses outside tunnels
}

func labUp(ctx context.Context, topology string, o labOptions, p *program) error {
	if isLabFile(o.kind) {
		return app.Usage("name them to run", "lab up makes no real machines")
	}

	err := cmp.Or(known("topology %q is not known", topology, "topologies", topologyNames()...), o.check())
	if err != nil {
		return err
	}

	t, err := lab.TopologyNamed(topology)
	if err != nil {
		return err
	}

	guest, err := o.guest(ctx, p)
	if err != nil {
		return err
	}

	if err := app.Prepare(p.Dirs.Runtime); err != nil {
		return err
	}

	id := strings.ToLower(app.NewID())
	own := p.Local(id, nil)
	own.Topology = t
	own.Detached = true
	own.Guest = guest
	own.Driver = o.driver
	own.Queues = o.queues
	l, err := own.Up(ctx)
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx)) // only disconnects: the lab stays
	shown := shownLab{
		ID:        id,
		Topology:  t.Name,
		Started:   time.Now().UTC(),
		Detached:  true,
		Alive:     true,
		Addresses: l.Addresses(),
	}
	if p.json {
		return printLine(p.Out, shown)
	}

	var rows grid
	for _, n := range t.Nodes {
		addresses := strings.Trim(strings.ReplaceAll(fmt.Sprint(shown.Addresses[n.Name]), " ", "  "), "[]")
		rows.add("  "+n.Name, addresses)
	}

	if l.Note != "" {
		p.note("%s", l.Note)
	}

	return p.print(fmt.Sprintf(
		"lab %s is up: %s\n%schokepoint run --attach %s measures on it; chokepoint lab down %s ends it\n",
		id, t.Name, table(rows, 0), id, id))
}

func newLabListCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "list",
		Short: "List the labs of this machine",
		RunE: func(*cobra.Command, []string) error {
			labs, err := lab.List(p.Dirs.Labs())
			if err != nil {
				return err
			}
			return printList(p, each(labs, func(i lab.Info) shownLab {
				return shownLab{
					ID:       i.ID,
					Topology: i.Topology.Name,
					Started:  i.Started,
					Detached: i.Detached,
					Alive:    i.Alive(),
				}
			}), "", shownLab.row)
		},
	}, "print one JSON object per lab")
}

func (s shownLab) row() []any {
	state := "of a run"
	switch {
	case !s.Alive:
		state = "dead (lab restore removes it)"
	case s.Detached:
		state = "up"
	}
	return []any{s.ID, s.Topology, state, s.Started.Format(time.DateTime)}
}

// findLab returns the detached lab with this name. If name is empty, it returns the only lab, unless that lab
// was started with another state directory and may therefore be another user's.
func findLab(d app.Dirs, name string) (lab.Info, error) {
	labs, err := lab.List(d.Labs())
	if err != nil {
		return lab.Info{}, err
	}

	var up []lab.Info
	for _, i := range labs {
		if i.Detached && i.Alive() && strings.HasPrefix(i.ID, name) {
			up = append(up, i)
		}
	}

	switch {
	case len(up) == 1 && name == "" && up[0].State != "" && up[0].State != d.State:
		return lab.Info{}, app.Usage("if you mean it, name it: lab exec --attach LAB, lab down LAB",
			"no lab of this session is up, only %s, which was started with the state directory %s", up[0].ID,
			up[0].State)
	case len(up) == 1:
		return up[0], nil
	case len(up) == 0 && name == "":
		return lab.Info{}, app.Usage("chokepoint lab up makes one", "no lab is up")
	case len(up) == 0:
		return lab.Info{}, app.Usage("chokepoint lab list shows the labs", "no lab %q is up", name)
	}

	ids := each(up, func(i lab.Info) string { return i.ID })
	return lab.Info{}, app.Usage("name one: "+list(ids), "more than one lab is up")
}

func newLabExecCommand(p *program) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec NODE [--attach LAB] -- COMMAND…",
		Short: "Run a command on a node of a lab",
		Long: `Run COMMAND on a node of a lab that is up, with the standard input and output of lab
exec. The exit code is that of COMMAND.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return app.Usage("chokepoint lab exec router -- ip route",
					"%s: want NODE, then --, then the command", cmd.CommandPath())
			}
			return labExec(cmd.Context(), name, args[0], args[1:], p)
		},
	}
	cmd.Flags().StringVar(&name, "attach", "", "use this `LAB`, if more than one is up")
	return cmd
}

func labExec(ctx context.Context, name, node string, command []string, p *program) error {
	i, err := findLab(p.Dirs, name)
	if err != nil {
		return err
	}

	if name == "" {
		p.note("lab %s, the only one that is up", i.ID)
	}

	names := each(i.Topology.Nodes, func(n record.TopoNode) string { return n.Name })
	if !slices.Contains(names, node) {
		return app.Usage(check.Choice(node, "nodes", names), "lab %s has no node %q", i.ID, node)
	}

	l, err := lab.Attach(p.Dirs.Labs(), i.ID, registry.LabParts(), nil)
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx))
	n, err := l.Node(ctx, node)
	if err != nil {
		return err
	}

	s, err := n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: command})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	go func() { // it ends with the input or with the program
		buf := make([]byte, 32<<10)
		for {
			n, err := p.In.Read(buf)
			if n > 0 && s.Send(buf[:n]) != nil || err != nil {
				s.Finish()
				return
			}
		}
	}()
	for { // print the output until the command ends
		var m agent.ExecOutput
		err := s.Recv(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}

		if err := errors.Join(p.print(string(m.Out)), write(p.Err, string(m.Err))); err != nil {
			return err
		}

		if m.Exit != nil && *m.Exit != 0 {
			return exitError(*m.Exit)
		}
	}
}

func newLabDownCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:               "down [LAB]",
		Short:             "Stop a lab that lab up has started",
		Args:              optionalArg,
		ValidArgsFunction: p.completeLabs,
		RunE: func(_ *cobra.Command, args []string) error {
			i, err := findLab(p.Dirs, append(args, "")[0])
			if err != nil {
				return err
			}

			if err := lab.Down(p.Dirs.Labs(), i); err != nil {
				return app.Dirty(err)
			}

			p.Dirs.ClearRuntime()
			return p.print("lab " + i.ID + " is down\n")
		},
	}
}

func newLabRestoreCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "restore",
		Short: "Undo what killed runs have left behind",
		Long: `Undo what killed runs have left behind: their labs, and settings in labs that stay up.
Labs whose owner is alive are never touched.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer p.Dirs.ClearRuntime()
			r, err := lab.Restore(cmd.Context(), p.Dirs.Journals(), "", p.AgentProgram, p.Dirs.AllLabs()...)
			var b builder
			for _, u := range r.Undone {
				b.printf("%s\n", u)
			}

			for _, o := range r.Living {
				b.printf("left run %s alone: it is still running\n", o)
			}

			for _, id := range r.Held {
				b.printf(
					"left lab %s alone: a run is using it; restore again when that has ended\n", id)
			}

			if len(r.Undone) == 0 && len(r.Held) == 0 && err == nil {
				b.WriteString("nothing to restore\n")
			}

			return errors.Join(app.Dirty(err), p.line(r, b.String()))
		},
	}, "print the outcome as a JSON object")
}

// checkedLab is a line of the output of lab check.
type checkedLab struct {
	Topology string        `json:"topology"`
	OK       bool          `json:"ok"`
	UpTime   time.Duration `json:"up_ns"`
	Error    string        `json:"error,omitempty"`
	Hint     string        `json:"hint,omitempty"`
}

func newLabCheckCommand(p *program) *cobra.Command {
	o := labOptions{queues: 1}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Bring every topology up and down, and report whether it works here",
		Long: `Bring every topology up and down, and report whether it works here. For a lab of real
machines, named by --lab FILE or by flags, it checks and reports whether each machine
can be reached, with which privileges, how precisely its clock offset is known, which
devices face the other machines, which programs are missing, whether data crosses the
path and the router's ports, with which MTU, how fast each endpoint is alone (this loads
its loopback device), and which queues, filters, rules and taps are on the packets'
path. If nothing can be measured, the check fails.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(); err != nil {
				return err
			}

			if o.machines != (record.Machines{}) {
				return p.WithMachines(cmd.Context(), o.machines,
					func(l *lab.Lab, held *labgrid.Held) error {
						return p.survey(cmd.Context(), l, held)
					})
			}
			return p.WithJournal("check-"+app.NewID(), func(j *journal.Journal) error {
				return labCheck(cmd.Context(), o, j, p)
			})
		},
	}
	cmd.Flags().StringVar(&o.kind, "lab", record.LabLocal, "`KIND` of lab: local, vm, vm:ARCH, or a lab file")
	addMachines(cmd, &o.machines)
	return addJSON(cmd, "print one JSON object per topology, or per check")
}

func labCheck(ctx context.Context, o labOptions, j *journal.Journal, p *program) error {
	guest, err := o.guest(ctx, p)
	if err != nil {
		return err
	}

	var failed []error
	for _, t := range lab.Topologies() {
		c := checkedLab{Topology: t.Name}
		start := time.Now()
		own := p.Local(fmt.Sprintf("check-%04x-%s", uint16(rand.Uint32()), t.Name), j)
		own.Topology, own.Guest = t, guest
		l, err := own.Up(ctx)
		c.UpTime = time.Since(start)
		if err == nil {
			err = l.Close(context.WithoutCancel(ctx))
		}

		line := fmt.Sprintf("%s: up in %s and gone again\n", t.Name, c.UpTime.Round(time.Millisecond))
		if c.OK = err == nil; !c.OK {
			err = app.Dirty(err)
			c.Error, c.Hint = err.Error(), check.HintOf(err)
			failed = append(failed, err)
			line = fmt.Sprintf("%s: %s\n", t.Name, c.Error)
			if c.Hint != "" {
				line += "  hint: " + c.Hint + "\n"
			}
		}

		if err := p.line(c, line); err != nil {
			return err
		}
	}

	switch {
	case ctx.Err() != nil:
		return errors.Join(failed...)
	case len(failed) > 0: // everything is already printed
		return exitError(exitCode(errors.Join(failed...)))
	}

	return nil
}
