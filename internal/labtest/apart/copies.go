package apart

import "fmt"

// Copies returns SQL statements that copy the only run of a store, with its ends, labels and results but
// without trials. The copies have the ids PREFIX1 to PREFIXn.
func Copies(prefix string, n int) []string {
	numbers := fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) `, n)
	id := `'` + prefix + `' || i`
	return []string{
		numbers + `INSERT INTO runs SELECT ` + id + `, stored_ns + i, started_ns + i, plan, lab, line, head
			FROM n, runs`,
		numbers + `INSERT INTO run_ends (run, status, reason, ended_ns) SELECT ` + id + `, status, reason, ended_ns
			FROM n, run_ends`,
		numbers + `INSERT INTO run_labels (run, kind, text) SELECT ` + id + `, kind,
			CASE kind WHEN 'name' THEN text || i ELSE text END FROM n, run_labels`,
		numbers + `INSERT INTO cell_results SELECT cell, ` + id + `, firmware, body FROM n, cell_results`,
	}
}
