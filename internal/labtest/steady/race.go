//go:build race

package steady

const raceDetector = true
