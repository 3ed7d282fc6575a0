package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background(), 300); err != nil {
		fmt.Println(err)
	}
	// Output: 300 orders, 300 invoices, 0 doubled
}
