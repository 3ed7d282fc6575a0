//go:build !linux

package main

import "time"

func readLoad() load { return load{at: time.Now()} }
