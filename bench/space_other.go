//go:build !linux && !darwin

package main

func freeSpace(string) (int64, bool) { return 0, false }
