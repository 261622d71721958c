// Package bed runs the service of a testbed: it starts jobs by schedule, by trigger and by request, measures
// their plans, sends the runs to the team's store, and alarms. Jobs are durable: each step is recorded when
// it has ended, and a step that was cut short is executed again. A step that measures continues its run,
// whose id was drawn in an earlier step. The store of runs decides which trials exist.
package bed
