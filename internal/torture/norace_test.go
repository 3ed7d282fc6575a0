//go:build !race

package torture_test

const raceDetector = false
