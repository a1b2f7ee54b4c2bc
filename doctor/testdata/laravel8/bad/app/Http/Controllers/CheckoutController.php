<?php

namespace App\Http\Controllers;

use App\Jobs\CapturePayment;
use App\Jobs\ChargeOrder;
use App\Models\Order;

class CheckoutController extends Controller
{
    public function pay(Order $order)
    {
        ChargeOrder::dispatchSync($order); // ZB161

        return redirect('/thanks');
    }

    public function capture(Order $order)
    {
        CapturePayment::dispatch($order->id);

        while ($order->fresh()->state !== 'paid') {
            usleep(200000); // ZB161
        }
    }
}
