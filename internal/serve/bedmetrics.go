package serve

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// BedFamilies returns the state of a testbed at the time now, as metrics.
func BedFamilies(b store.Bed, now time.Time) (all []report.Family) {
	add := func(name, unit, help string, value float64, labels ...[2]string) {
		name = "chokepoint_bed_" + name
		labels = append([][2]string{{"testbed", b.Name}}, labels...)
		all = append(all, report.Family{
			Name:    name,
			Unit:    unit,
			Help:    help,
			Samples: report.Sample(name, labels, value),
		})
	}
	at := func(name, help string, t time.Time, labels ...[2]string) {
		add(name+"_timestamp_seconds", "seconds", help, float64(t.UnixMilli())/1000, labels...)
	}
	at("report", "time of the last report of the testbed", b.Seen)
	add("silent", "", "1: the testbed should have reported or ended a job, 0: it is not overdue",
		boolean(b.Silent(now) != ""))
	add("jobs", "", "jobs that run and wait", boolean(b.Job != nil), [2]string{"status", "running"})
	add("jobs", "", "jobs that run and wait", float64(len(b.Waiting)), [2]string{"status", "waiting"})
	if b.Job != nil && b.Job.Total > 0 {
		add("run_trials", "", "trials of the current run that have ended", float64(b.Job.Trials))
		add("run_planned_trials", "", "trials that the current run has in all", float64(b.Job.Total))
	}

	for _, s := range b.Schedules {
		schedule := [2]string{"schedule", s.Name}
		at("schedule_next", "when the schedule starts its next job", s.Next, schedule)
		at("schedule_due", "time by which a job of the schedule has to end", s.By, schedule)
	}

	if len(b.Ended) > 0 {
		at("last_job", "when the last job ended", b.Ended[0].Ended, [2]string{"status", b.Ended[0].Status})
	}

	undelivered := 0.0
	for _, a := range b.Alarms {
		undelivered += boolean(a.Unsent != "")
	}

	add("undelivered_alarms", "", "alarms that could not be delivered yet", undelivered)
	return all
}

func boolean(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
