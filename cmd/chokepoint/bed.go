package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/bed"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newBedCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bed FILE",
		Short: "Run a testbed: measure every night and at each new firmware, and alarm",
		Long: `Run the service of a testbed, which the bed FILE describes: schedules and triggers start
jobs, each job measures plans in the testbed's lab, and changes of the results raise
alarms. The service runs until Ctrl-C or SIGTERM. It continues what was cut short, even by
kill -9 or a loss of power; at most the trial that ran is lost.

docs/howto/testbed.md explains the file.`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.bedService(args[0])
			if err != nil {
				return err
			}
			return s.Run(cmd.Context())
		},
	}
	cmd.AddCommand(newBedCheckCommand(p), newBedStatusCommand(p), newBedForgetCommand(p))
	return cmd
}

func newBedCheckCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a bed file, with its plans and its lab, and run nothing",
		Args:  exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := p.bedService(args[0])
			if err != nil {
				return err
			}

			next := s.Next(time.Now())
			var b builder
			b.printf("testbed %s, lab %s\n", s.Config.Name, s.Config.Lab)
			for i, x := range s.Config.Schedules {
				b.printf("schedule %s: next at %s\n", x.Name, next[i].Format("2006-01-02 15:04 MST"))
			}

			for _, t := range s.Config.Triggers {
				b.printf("trigger %s: looks every %s\n", t.Name, unit.Duration(t.Every))
			}
			return p.print(b.String())
		},
	}
}

func newBedStatusCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "status",
		Short: "List the testbeds of the store; fail if one is silent",
		Long: `List the testbeds that report to the store. A testbed is silent if no job of a schedule
was done in time, or if it has no schedules and has not reported for an hour. Then the
exit code is 1, so that a cron job on another machine can alarm.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			beds, err := p.Dirs.Beds(cmd.Context())
			if err == nil && len(beds) == 0 {
				err = app.Hinted("name the store of the testbeds with --store",
					"no testbed reports to this store")
			}

			if err != nil {
				return err
			}
			return p.bedStatus(beds, time.Now())
		},
	}, "print one JSON object per testbed")
}

// bedStatus prints testbeds. The error that it returns names each testbed that is silent.
func (p *program) bedStatus(beds []store.Bed, now time.Time) (err error) {
	err = printList(p, beds, "TESTBED | HOST | SEEN | JOB | LAST JOB | NEXT", func(b store.Bed) []any {
		job, last, next := "-", "-", "-"
		if b.Job != nil {
			job = b.Job.Why + ", " + b.Job.Step
		}

		if len(b.Ended) > 0 {
			last = b.Ended[0].Why + ": " + b.Ended[0].Status
		}

		for i, s := range b.Schedules {
			if at := s.Next.Local().Format("2006-01-02 15:04"); i == 0 || at < next {
				next = at
			}
		}

		return []any{b.Name, b.Host, b.Seen.Local().Format("2006-01-02 15:04"), job, last, next}
	})
	for _, b := range beds {
		if why := b.Silent(now); why != "" {
			err = errors.Join(err, fmt.Errorf("testbed %s is silent: %s", b.Name, why))
		}
	}
	return err
}

func newBedForgetCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "forget NAME",
		Short: "Remove a testbed from the list; its runs stay",
		Args:  exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.Dirs.ForgetBed(cmd.Context(), args[0])
		},
	}
}

// bedService reads a bed file and checks its lab, versions and plans.
func (p *program) bedService(file string) (s *bed.Service, err error) {
	_, err = bed.Read(file, func(c plan.Bed) (key string, err error) {
		if s, err = p.bedOf(c); err != nil {
			return "lab", err
		}
		return checkBed(s)
	})
	if err != nil {
		return nil, err
	}

	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}

	s.Changed = info.ModTime()
	return s, nil
}

// bedOf returns the service of a testbed whose lab can be used.
func (p *program) bedOf(c plan.Bed) (*bed.Service, error) {
	if c.Store != "" && p.place == "" {
		p.Dirs = p.Dirs.At(c.Store)
	}

	o := versionOptions{lab: labOptions{kind: c.Lab, queues: 1}}
	plain, err := o.place()
	if err != nil {
		return nil, err
	}

	s := &bed.Service{App: p.App, Config: c, On: o.On, Version: o.version}
	s.App.Command, s.App.Attended = nil, false
	s.App.Ask = func(_ context.Context, step record.Step) error {
		return app.Hinted("take the steps out of the plan", "step %q: a testbed asks no one", step.Prompt)
	}
	plans := map[string]string{}
	for _, x := range c.Plans {
		plans[x.Name] = x.Plan
	}

	s.Plan = func(name string, v app.RouterVersion, compares bool) (*plan.Plan, error) {
		request := app.PlanRequest{Name: plans[name]}
		if compares {
			request.Sets = append(request.Sets, "method.runs=1")
		}

		if v.Firmware != "" {
			request.Sets = append(request.Sets, "matrix.firmware="+v.Firmware)
		}

		pl, err := request.Read(app.Peer{})
		if err == nil {
			plain.condition(&pl.Design)
		}
		return pl, err
	}
	return s, nil
}

// checkBed checks that versions and plans can be read. If it returns an error, key is the wrong key.
func checkBed(s *bed.Service) (key string, err error) {
	c := s.Config
	var usual app.RouterVersion
	for _, x := range [][2]string{{"canary", c.Canary}, {"good", c.Good}, {"firmware", c.Firmware}} {
		key, word := x[0], x[1]
		if word == "" {
			continue
		}

		v, err := s.Version(word)
		if err != nil {
			return key, err
		}

		if v.Firmware != "" && !s.On.Machines.Installs() {
			return key, app.Usage("add firmware: {command: …} or firmware: {labgrid: …} to it",
				"the lab file cannot install version %s", word)
		}

		if word == c.Firmware {
			usual = v
		}
	}

	for _, x := range c.Plans {
		if _, err := s.Plan(x.Name, usual, false); err != nil {
			return "plans." + x.Name, err
		}
	}

	return "", nil
}
