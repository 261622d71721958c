// Package bed runs the service of a testbed. The service starts jobs by schedule, by trigger and by request,
// measures their plans, sends the runs to the team's store, and raises alarms.
//
// Jobs are durable. Each step is recorded when it has ended, and a step that was cut short is executed again.
// If such a step measures, it continues its run, whose id was drawn in an earlier step. The store of runs
// determines which trials the run already has.
package bed
