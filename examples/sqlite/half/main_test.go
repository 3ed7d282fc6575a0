package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a plain check: 1 payment, 0 message
	// a check that claims: 1 payment, 1 message
}
