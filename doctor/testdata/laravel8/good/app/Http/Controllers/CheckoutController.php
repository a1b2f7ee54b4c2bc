<?php

namespace App\Http\Controllers;

use App\Jobs\ChargeOrder;
use App\Jobs\SendLoginAlert;
use App\Models\Order;

class CheckoutController extends Controller
{
    public function pay(Order $order)
    {
        ChargeOrder::dispatch($order);
        SendLoginAlert::dispatchSync();

        return redirect('/orders/'.$order->id);
    }
}
