//go:build !race

package steady

const raceDetector = false
