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
	// booked: coffee, flaky, slow, tea
	// tries: flaky 3, slow 5
	// dead: broken (panic, tried 1 time, from payments/0): runtime error: index out of range [1] with length 0
	// dead: closed (permanent, tried 1 time, from payments/0): no such account
	// redriven: 2
	// booked then: broken, closed
	// dead letters left: 0
}
