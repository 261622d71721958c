package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/bundle"
	"github.com/chokepoint-lab/chokepoint/internal/catalogue"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func newPredictCommand(p *program) *cobra.Command {
	var q catalogue.Result
	var run, bundles, cipher string
	var clock int
	var ofModels, rows bool
	cmd := &cobra.Command{
		Use:   "predict (--device NAME | --run RUN | --errors)",
		Short: "Predict a rate that was not measured, with the prediction's error",
		Long: `Predict a rate that was not measured, from published results of a device or from the
cells of your own run. Measured results come first, then models that use the device's
own results, then models that use other devices. Each model shows its data and
assumptions, or why it refuses. The range comes from the model's errors on published
results that it was not given (--errors). It is wider if the interval of the model
itself or of the cells is wider. The published power of the device is shown below; no
model predicts power.

With --cipher, predict the speed of a cipher, hash or key operation on one core of a
device: as published or, with --clock, at another clock rate.

With --errors, show how far off the models are: each estimates every published rate from
all the others, or with --run every cell of your own run from its other cells. "Refused"
counts the rates to which a model does not apply.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case ofModels:
				return p.modelErrors(cmd.Context(), run, rows)
			case rows:
				return app.Usage("add --errors", "--rows is of --errors")
			}

			q.Tunnel = tunnelCalled(q.Tunnel)
			c, aside, scores, err := p.soundCatalogue(bundles)
			if err == nil {
				err = cmp.Or(asksForZero(cmd, "streams", "mtu", "packet-size", "clock"),
					knownLevels(q.Tunnel, q.Protocol, q.IP, q.Streams, q.MTU),
					known("--direction %q is none of up, down, both", q.Direction, "directions", factor.Up,
						factor.Down, factor.Both),
					between("", "packet-size", cmp.Or(q.Packet, 28), 28, maxPacket),
					between("in MHz", "clock", clock, 0, 100000))
			}

			switch {
			case err != nil:
				return err
			case (q.Device == "") == (run == ""):
				return app.Usage("chokepoint catalog devices lists the devices",
					"predict wants either --device or --run, or --errors")
			case q.Packet != 0 && q.Protocol != "udp":
				return app.Usage("add --protocol udp, or use --mtu", "--packet-size is of UDP")
			case cipher != "":
				return p.predictSpeed(c, aside, q.Device, cipher, clock)
			case clock > 0:
				q.Clock = strconv.Itoa(clock)
			}

			rows := c.Results
			if run != "" {
				d, err := p.Dirs.Document(cmd.Context(), run)
				if err != nil {
					return err
				}

				rows = resultsOf(d)
				q.Device = bundle.RunDevice
				if err := askOfRun(cmd, &q, rows); err != nil {
					return err
				}

				scores = model.Scored(model.LeaveOneOut(c, rows, model.OfOwn), scores)
			} else if err := knownDevice(c, "--device", q.Device); err != nil {
				return err
			}

			prediction := model.Predict(c, rows, q, scores)
			prediction.Uncounted = uncounted(aside, q.Device)
			text := p.fitted(predictionText(prediction) + suspectText(rows))
			if err := p.document(prediction, text); err != nil {
				return err
			}

			if len(prediction.Estimates)+len(prediction.Measured) == 0 && prediction.AtMostBps == 0 {
				return errors.New(
					"nothing is known of this rate: no result answers it, and every model refuses")
			}

			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Device, "device", "", "the device `NAME` of the catalogue")
	f.StringVar(&run, "run", "", "predict from the cells of the stored `RUN`")
	cmd.RegisterFlagCompletionFunc("run", completeRuns(p, 1))
	f.StringVar(&q.Tunnel, "tunnel", "none", "the tunnel `NAME`: "+catalogTunnelWords()+
		"; with --run the default is that of all its cells")
	f.StringVar(&q.Protocol, "protocol", "tcp",
		"the protocol `NAME`: tcp or udp; with --run the default is that of all its cells")
	f.StringVar(&q.IP, "ip", "", "the IP `VERSION`, 4 or 6 (default: either)")
	f.StringVar(&q.Direction, "direction", "",
		"the direction `WAY` of the traffic: up, down or both (default: any)")
	f.IntVar(&q.Streams, "streams", 0, "`N` streams (default: any number)")
	f.IntVar(&q.MTU, "mtu", 0, "the inner MTU in `BYTES` (default: any)")
	f.IntVar(&q.Packet, "packet-size", 0, "the size of UDP packets in `BYTES`")
	f.IntVar(&clock, "clock", 0, "the clock of the processor in `MHZ` (default: any)")
	f.StringVar(&cipher, "cipher", "",
		"predict the speed of the algorithm `NAME`, such as aes-128-gcm, instead of a rate")
	f.BoolVar(&ofModels, "errors", false, "show the errors of the models instead of a prediction")
	f.BoolVar(&rows, "rows", false, "with --errors: also list every estimate")
	for name := range strings.FieldsSeq("tunnel protocol ip direction streams mtu packet-size") {
		cmd.MarkFlagsMutuallyExclusive("cipher", name)
		cmd.MarkFlagsMutuallyExclusive("errors", name)
	}

	cmd.MarkFlagsMutuallyExclusive("cipher", "run")

	addBundles(cmd, &bundles)
	for name := range strings.FieldsSeq("device cipher clock bundles") {
		cmd.MarkFlagsMutuallyExclusive("errors", name)
	}

	cmd.MarkFlagsMutuallyExclusive("mtu", "packet-size")
	cmd.MarkFlagsMutuallyExclusive("device", "run")
	return addJSON(cmd, "print one JSON document")
}

// askOfRun sets the tunnel and the protocol of a question, unless flags set them. It uses the tunnel and the
// protocol that all cells of the run share.
func askOfRun(cmd *cobra.Command, q *catalogue.Result, rows []catalogue.Result) error {
	for _, at := range []struct {
		flag  string
		level *string
		of    func(catalogue.Result) string
	}{
		{"tunnel", &q.Tunnel, func(r catalogue.Result) string { return r.Tunnel }},
		{"protocol", &q.Protocol, func(r catalogue.Result) string { return r.Protocol }},
	} {
		levels := distinct(each(rows, at.of))
		switch {
		case cmd.Flags().Changed(at.flag) || slices.Contains(levels, *at.level):
		case len(levels) == 1:
			*at.level = levels[0]
		case len(levels) > 1:
			return app.Usage("name one by --"+at.flag+": "+list(levels),
				"the run's cells differ in their %s", at.flag)
		}
	}
	return nil
}

func (p *program) predictSpeed(c, aside *catalogue.Catalogue, device, algorithm string, clock int) error {
	names := distinct(each(c.Speeds, func(s catalogue.Speed) string { return s.Algorithm }))
	err := cmp.Or(known("--cipher %q is not in the catalogue", algorithm, "one of", names...),
		knownDevice(c, "--device", device))
	if err != nil {
		return err
	}

	s := model.PredictSpeed(c, device, algorithm, float64(clock))
	s.Uncounted = uncounted(&catalogue.Catalogue{Speeds: without(aside.Speeds,
		func(s catalogue.Speed) bool { return s.Algorithm != algorithm })}, device)
	var b builder
	b.printf("device %s, %s on one core\n", s.Device, s.Algorithm)
	for _, x := range s.Measured {
		b.printf("\nmeasured: %s, %s\n", speedWords(x), x.Source)
	}

	for _, x := range s.Scaled {
		b.printf("\nat %g MHz: %s\n  assumes: a byte or an operation takes as many cycles; no error "+
			"of that is known\n", s.ClockMHz, speedWords(x))
	}

	if s.Refused != "" {
		b.printf("\nrefused: %s\n", s.Refused)
	}

	if s.Uncounted != "" {
		b.printf("\n%s\n", s.Uncounted)
	}

	if err := p.document(s, p.fitted(b.String())); err != nil {
		return err
	}

	if len(s.Measured) == 0 {
		return errors.New("nothing is known of this speed")
	}

	return nil
}

// speedWords describes a speed, such as "throughput 1.81 Gbit/s, blocks of 16384 B".
func speedWords(s catalogue.Speed) string {
	words := s.Operation + " " + s.Text()
	if s.Block > 0 {
		words += fmt.Sprintf(", blocks of %d B", s.Block)
	}

	if s.Mode != "" {
		words += ", " + s.Mode
	}

	return words
}

func predictionText(p model.Prediction) string {
	var b builder
	b.WriteString(model.Words(p.Question) + "\n")
	for i, r := range p.Measured {
		if i == 0 {
			b.WriteString("\n")
		}

		b.printf("measured: %s, %s, %s", r.Rate(), r.How(), r.Source)
		words := r.Words(p.Question)
		if words != "" {
			b.printf(" (%s)", words)
		}

		if len(r.Unstated) > 0 {
			b.printf("; not stated: %s", list(r.Unstated))
		}

		if r.Impossible != "" {
			b.WriteString("; impossible")
		}

		if r.Grade == evidence.GradeSuspect {
			b.WriteString("; suspect")
		}

		b.WriteString("\n")
	}

	b.WriteString(paragraph(each(p.Impossible, func(why string) string {
		return "impossible, though models may rest on it: " + why
	})))

	for _, e := range p.Estimates {
		b.printf("\nmodel %s: %s", e.From(), unit.Bitrate(e.GoodputBps))
		words := e.Range()
		if words != "" {
			b.WriteString(", " + words)
		}

		for _, s := range p.Errors {
			if s.Model != e.Model {
				continue
			}

			share := "eight of ten"
			if s.N < 10 {
				share = "all"
			}

			b.printf("\n  errors: on %s %s are from %s to %s, their median size is %s",
				unit.Count(s.N, s.Of), share, signed(s.Low), signed(s.High), unit.Percent(s.Typical))
		}

		b.WriteString("\n")
		for _, line := range e.Basis {
			b.WriteString("  from: " + line + "\n")
		}

		for _, line := range e.Assumes {
			b.WriteString("  assumes: " + line + "\n")
		}
	}

	if p.AtMostBps > 0 {
		b.printf("\nat most %s, by %s\n", unit.Bitrate(p.AtMostBps), p.AtMost)
	}

	if p.InSoftware && p.Question.Tunnel == "esp" {
		b.WriteString("  a crypto engine may do more\n")
	}

	if p.Unbound != "" {
		b.WriteString("\n" + p.Unbound + "\n")
	}

	b.WriteString(paragraph(each(p.Refused, func(r model.Refusal) string {
		return "model " + r.Model + " refuses: " + r.Reason
	})))
	b.WriteString(paragraph(each(p.Powers, func(w catalogue.Power) string {
		of := ""
		if !strings.EqualFold(w.Device, p.Question.Device) {
			of = " of " + w.Device
		}
		return fmt.Sprintf("power%s: %s, load %s, %s", of, cmp.Or(w.Watts(), "not given"), w.Load, w.Source)
	})))
	if p.Uncounted != "" {
		b.printf("\n%s\n", p.Uncounted)
	}

	return b.String()
}
