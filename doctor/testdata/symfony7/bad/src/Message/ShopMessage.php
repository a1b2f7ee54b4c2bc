<?php

namespace App\Message;

interface ShopMessage
{
}
