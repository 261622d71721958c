package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

func newLabCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Bring testbeds up and down, look into them, put them back",
		Long: "A lab is client, router and server as namespaces of this machine. run makes its\n" +
			"own; lab up makes one that stays, for run --attach and for looking into it.",
	}
	cmd.AddCommand(newLabUpCommand(p), newLabListCommand(p), newLabExecCommand(p), newLabCheckCommand(p),
		newLabDownCommand(p), newLabRestoreCommand(p))
	return cmd
}

type labUpOptions struct {
	topology string
	lab      labOptions
	json     bool
}

func newLabUpCommand(p *program) *cobra.Command {
	var o labUpOptions
	cmd := &cobra.Command{
		Use:   "up [TOPOLOGY] [--lab KIND] [--json]",
		Short: "Make a lab that stays up until lab down",
		Long: "Make a lab that stays up until lab down, and print its id and addresses.\n" +
			"TOPOLOGY is forward (the default), to-router, site-to-site or direct.",
		Args:      optionalArg,
		ValidArgs: topologyNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.topology = lab.Topologies()[0].Name
			if len(args) == 1 {
				o.topology = args[0]
			}
			return runLabUp(cmd.Context(), o, p)
		},
	}
	o.lab.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.json, "json", false, "print the lab as a JSON object")
	return cmd
}

func topologyNames() []string {
	var names []string
	for _, t := range lab.Topologies() {
		names = append(names, t.Name)
	}
	return names
}

// shownLab is a lab as lab up and lab list print it.
type shownLab struct {
	ID        string                  `json:"id"`
	Topology  string                  `json:"topology"`
	Started   time.Time               `json:"started"`
	Detached  bool                    `json:"detached"` // stays until lab down; else it belongs to a run
	Alive     bool                    `json:"alive"`
	Addresses map[string][]netip.Addr `json:"addresses,omitempty"` // node → its addresses on the plain path
}

func runLabUp(ctx context.Context, o labUpOptions, p *program) error {
	t, err := lab.TopologyNamed(o.topology)
	if err != nil {
		return &usageError{fmt.Sprintf("topology %q is not known", o.topology), "topologies: " +
			strings.Join(topologyNames(), ", ")}
	}
	if err := o.lab.check(); err != nil {
		return err
	}
	guest, err := o.lab.guest(ctx, p)
	if err != nil {
		return err
	}
	if err := prepare(p.dirs.Runtime); err != nil {
		return err
	}
	id := strings.ToLower(store.NewID(time.Now(), randomWord()))
	l, err := lab.Local{ID: id, Topology: t, Dir: labsDir(p.dirs), Detached: true, Guest: guest,
		Queues: o.lab.queues, Parts: registry.LabParts()}.Up(ctx)
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx)) // only hangs up: the lab stays
	shown := shownLab{ID: id, Topology: t.Name, Started: time.Now().UTC(), Detached: true, Alive: true,
		Addresses: l.Addresses()}
	if o.json {
		line, err := jsonLine(shown)
		if err != nil {
			return err
		}
		return write(p.Out, string(line))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "lab %s is up: %s\n", id, t.Name)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, n := range t.Nodes {
		fmt.Fprintf(w, "  %s\t%s\n", n.Name, addressWords(shown.Addresses[n.Name]))
	}
	w.Flush()
	fmt.Fprintf(&b, "chokepoint run --attach %s measures on it; chokepoint lab down %s ends it\n", id, id)
	if l.Note != "" {
		p.streams.note("%s", l.Note)
	}
	return write(p.Out, b.String())
}

func addressWords(list []netip.Addr) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	return strings.Join(words, "  ")
}

func newLabListCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [--json]",
		Short: "List the labs of this machine",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			labs, err := lab.List(labsDir(p.dirs))
			if err != nil {
				return err
			}
			var b strings.Builder
			w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			for _, i := range labs {
				s := shownLab{ID: i.ID, Topology: i.Topology.Name, Started: i.Started, Detached: i.Detached,
					Alive: i.Alive()}
				if asJSON {
					line, err := jsonLine(s)
					if err != nil {
						return err
					}
					b.Write(line)
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.ID, s.Topology, labState(s),
					s.Started.Format(time.DateTime))
			}
			w.Flush()
			return write(p.Out, b.String())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per lab")
	return cmd
}

func labState(s shownLab) string {
	switch {
	case !s.Alive:
		return "dead (lab restore removes it)"
	case s.Detached:
		return "up"
	}
	return "of a run"
}

// findLab finds a detached lab that is up; without a name, the only one.
func findLab(d dirs, name string) (lab.Info, error) {
	labs, err := lab.List(labsDir(d))
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
	case len(up) == 1:
		return up[0], nil
	case len(up) == 0 && name == "":
		return lab.Info{}, &usageError{"no lab is up", "chokepoint lab up makes one"}
	case len(up) == 0:
		return lab.Info{}, &usageError{fmt.Sprintf("no lab %q is up", name),
			"chokepoint lab list shows the labs"}
	}
	var ids []string
	for _, i := range up {
		ids = append(ids, i.ID)
	}
	return lab.Info{}, &usageError{"more than one lab is up", "name one: " + strings.Join(ids, ", ")}
}

type labExecOptions struct {
	lab, node string
	command   []string
}

func newLabExecCommand(p *program) *cobra.Command {
	var o labExecOptions
	cmd := &cobra.Command{
		Use:   "exec NODE [--lab LAB] -- COMMAND…",
		Short: "Run a command on a node of a lab",
		Long: "Run a command on a node of a lab that is up, with this command's standard input\n" +
			"and output. The exit code is the command's own.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return &usageError{cmd.CommandPath() + ": want NODE, then --, then the command",
					"chokepoint lab exec router -- ip route"}
			}
			o.node, o.command = args[0], args[1:]
			return runLabExec(cmd.Context(), o, p)
		},
	}
	cmd.Flags().StringVar(&o.lab, "lab", "", "the `LAB`, if more than one is up")
	return cmd
}

func runLabExec(ctx context.Context, o labExecOptions, p *program) error {
	i, err := findLab(p.dirs, o.lab)
	if err != nil {
		return err
	}
	var names []string
	for _, n := range i.Topology.Nodes {
		names = append(names, n.Name)
	}
	if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+o.node+" ") {
		return &usageError{fmt.Sprintf("lab %s has no node %q", i.ID, o.node), "nodes: " +
			strings.Join(names, ", ")}
	}
	l, err := lab.Attach(labsDir(p.dirs), i.ID, registry.LabParts(), nil)
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx))
	n, err := l.Node(ctx, o.node)
	if err != nil {
		return err
	}
	s, err := n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: o.command})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	go func() { // ends with the input, or with the program
		buf := make([]byte, 32<<10)
		for {
			n, err := p.In.Read(buf)
			if n > 0 && s.Send(buf[:n]) != nil || err != nil {
				s.Finish()
				return
			}
		}
	}()
	return follow(ctx, s.Recv, p)
}

// follow prints what the command says until it ends.
func follow(ctx context.Context, recv func(any) error, p *program) error {
	for {
		var m agent.ExecOutput
		err := recv(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if err := errors.Join(write(p.Out, string(m.Out)), write(p.Err, string(m.Err))); err != nil {
			return err
		}
		if m.Exit != nil && *m.Exit != 0 {
			return &exitError{code: *m.Exit}
		}
	}
}

func newLabDownCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "down [LAB]",
		Short: "End a lab that lab up has made",
		Args:  optionalArg,
		RunE: func(_ *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			i, err := findLab(p.dirs, name)
			if err != nil {
				return err
			}
			if err := lab.Down(labsDir(p.dirs), i); err != nil {
				return dirty(err)
			}
			clearRuntime(p.dirs)
			return write(p.Out, "lab "+i.ID+" is down\n")
		},
	}
}

func newLabRestoreCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore [--json]",
		Short: "Undo what killed runs have left",
		Long: "Undo what killed runs have left: their labs, and settings in labs that stay up.\n" +
			"Labs whose owner lives are never touched.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer clearRuntime(p.dirs)
			r, err := lab.Restore(cmd.Context(), journalDir(p.dirs), labsDir(p.dirs))
			if asJSON {
				line, jsonErr := jsonLine(r)
				return errors.Join(dirty(err), jsonErr, write(p.Out, string(line)))
			}
			var b strings.Builder
			for _, u := range r.Undone {
				fmt.Fprintln(&b, u)
			}
			for _, o := range r.Living {
				fmt.Fprintf(&b, "left run %s alone: it is still running\n", o)
			}
			for _, id := range r.Held {
				fmt.Fprintf(&b, "left lab %s alone: a run is using it; restore again when that has "+
					"ended\n", id)
			}
			if len(r.Undone) == 0 && len(r.Held) == 0 && err == nil {
				b.WriteString("nothing to restore\n")
			}
			return errors.Join(dirty(err), write(p.Out, b.String()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the outcome as a JSON object")
	return cmd
}

func newLabCheckCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [--json]",
		Short: "Bring every topology up and down, and say whether it works here",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runLabCheck(cmd.Context(), asJSON, p)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per topology")
	return cmd
}

// checkedLab is one line of lab check.
type checkedLab struct {
	Topology string        `json:"topology"`
	OK       bool          `json:"ok"`
	UpTime   time.Duration `json:"up_ns"`
	Error    string        `json:"error,omitempty"`
}

func runLabCheck(ctx context.Context, asJSON bool, p *program) error {
	for _, dir := range []string{p.dirs.Runtime, p.dirs.State} {
		if err := prepare(dir); err != nil {
			return err
		}
	}
	defer clearRuntime(p.dirs)
	j, err := journal.Create(journalDir(p.dirs), "check-"+store.NewID(time.Now(), randomWord()))
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range lab.Topologies() {
		c := checkedLab{Topology: t.Name}
		start := time.Now()
		l, err := lab.Local{ID: fmt.Sprintf("check-%04x-%s", randomWord(), t.Name), Topology: t,
			Dir:     labsDir(p.dirs),
			Journal: j, Parts: registry.LabParts()}.Up(ctx)
		c.UpTime = time.Since(start)
		if err == nil {
			err = l.Close(context.WithoutCancel(ctx))
		}
		c.OK = err == nil
		if err != nil {
			c.Error = err.Error()
			failed = append(failed, dirty(err))
		}
		line := fmt.Sprintf("%s: up in %s and gone again\n", t.Name, c.UpTime.Round(time.Millisecond))
		if !c.OK {
			line = fmt.Sprintf("%s: %s\n", t.Name, c.Error)
		}
		if asJSON {
			b, err := json.Marshal(c)
			if err != nil {
				return err
			}
			line = string(b) + "\n"
		}
		if err := write(p.Out, line); err != nil {
			return err
		}
	}
	return errors.Join(append(failed, j.Close())...)
}
